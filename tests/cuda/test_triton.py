"""The Triton kernels against float64: on an NVIDIA GPU, else through Triton's interpreter.

Without a GPU the process must be started with TRITON_INTERPRET=1, as .ci/stages/60-triton.sh does;
the whole contract suite of the convolution then runs too (`tests/ops/test_conv.py --backend cuda`).
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import triton_interpreter
from tolerance import FORWARD, GRADIENT, assert_close
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry

pytestmark = pytest.mark.triton
pytest.importorskip("triton")

GPU = torch.cuda.is_available()
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DEVICE = "cuda" if GPU else "cpu"
ROWS = 6000 if GPU else 66


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    if not GPU:
        if not triton_interpreter.is_interpreting():
            pytest.skip("no NVIDIA GPU, and TRITON_INTERPRET is not 1")
        triton_interpreter.enable()
    reason = _registry.load("cuda")
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def on_kernels() -> Iterator[None]:
    """The interpreter has no other kernels: there the maps come from the reference."""
    with _registry.force("cuda"), _registry.strict() if GPU else nullcontext():
        yield


def sites(rows: int = ROWS, extent: int | None = None, ndim: int = 3) -> torch.Tensor:
    """Distinct random sites of two samples, on the CPU."""
    extent = extent or (30 if rows > 1000 else 7)
    cells = torch.randperm(2 * extent**ndim)[:rows]
    columns = [cells // extent**axis % extent for axis in range(ndim)]
    return torch.stack([cells // extent**ndim, *columns], 1).int()


def tensor(features: torch.Tensor, indices: torch.Tensor, check: bool = True) -> SparseConvTensor:
    shape = [32] * (indices.shape[1] - 1)
    return SparseConvTensor(features, indices.to(features.device), shape, 2, check=check)


def run(net: nn.Module, features: torch.Tensor, indices: torch.Tensor, grad: bool) -> list[Any]:
    """Output and, where asked for, gradients to features and every parameter."""
    leaf = features.detach().requires_grad_(grad)
    with torch.set_grad_enabled(grad):
        out = net(tensor(leaf, indices)).features
    if not grad:
        return [out]
    ramp = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    wanted = [leaf, *(p for p in net.parameters() if p.requires_grad)]
    return [out, *torch.autograd.grad(out, wanted, ramp.to(out))]


def agree(net: nn.Module, channels: int, dtype: torch.dtype, indices: torch.Tensor) -> None:
    """A net in dtype equals itself in float64 by the reference, forward and backward."""
    net = net.to(dtype)
    features = torch.randn(len(indices), channels).to(dtype)
    with _registry.force("reference"):
        expected = run(copy.deepcopy(net).double(), features.double(), indices, True)
        quiet = run(copy.deepcopy(net).double(), features.double(), indices, False)
    net = net.to(DEVICE)
    with on_kernels():
        found = run(net, features.to(DEVICE), indices, True)
        fused = run(net, features.to(DEVICE), indices, False)
    assert_close(fused[0], quiet[0], dtype, FORWARD, "fused")
    assert_close(found[0], expected[0], dtype, FORWARD, "forward")
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert_close(ours, theirs, dtype, GRADIENT, "gradient")


def undone(channels: int, width: int) -> nn.Module:
    return spnn.SparseSequential(
        spnn.SparseConv3d(channels, width, 2, 2, bias=False, indice_key="d"),
        spnn.SparseInverseConv3d(width, channels, 2, "d", bias=False),
    )


def normed(channels: int, width: int) -> nn.Module:
    """In inference, the norm is a scale of the convolution's sums.

    The activation is smooth: a sum that rounding takes over ReLU's kink flips a whole gradient, and
    the torch reference in float16 is then as far off (0.07). The norm's own gradients are torch's.
    """
    norm = nn.BatchNorm1d(width)
    nn.init.uniform_(norm.weight, 0.5, 2)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    norm.requires_grad_(False)
    layer = spnn.SubMConv3d(channels, width, 3, bias=False)
    return spnn.SparseSequential(layer, norm, nn.Sigmoid()).eval()


KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "submanifold": lambda a, b: spnn.SubMConv3d(a, b, 3, bias=False),
    "dilated": lambda a, b: spnn.SubMConv3d(a, b, 3, dilation=2, bias=True),
    "large": lambda a, b: spnn.SubMConv3d(a, b, 5, bias=False),
    "strided": lambda a, b: spnn.SparseConv3d(a, b, 3, 2, 1, bias=False),
    "inverse": undone,
    "floor": lambda a, b: spnn.SparseConv3d(a, b, 2, 2, bias=False, rule="floor"),
    "transposed": lambda a, b: spnn.SparseConvTranspose3d(a, b, 3, 2, bias=False),
    "pointwise": lambda a, b: spnn.SubMConv3d(a, b, 1, bias=False),
    "normed": normed,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer(kind: str, dtype: torch.dtype) -> None:
    if not GPU and dtype != torch.float32 and kind not in ("submanifold", "inverse"):
        pytest.skip("the interpreter takes seconds each")
    agree(KINDS[kind](8, 16), 8, dtype, sites())


@pytest.mark.parametrize("channels", [(1, 1), (3, 5), (4, 32), (20, 40), (64, 32), (33, 70)])
def test_any_number_of_channels(channels: tuple[int, int]) -> None:
    for dtype in DTYPES[: 2 if GPU or channels == (4, 32) else 1]:
        agree(spnn.SubMConv3d(*channels, 3, bias=True), channels[0], dtype, sites())


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_channel_groups(groups: int, dtype: torch.dtype) -> None:
    agree(spnn.SubMConv3d(8, 8, 3, groups=groups, bias=True), 8, dtype, sites())


def test_four_axes() -> None:
    agree(spnn.SubMConv4d(4, 8, 3, bias=False), 4, torch.float32, sites(60, 3, ndim=4))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_epilogue(activation: str, dtype: torch.dtype) -> None:
    indices = sites()
    layer = spnn.SparseConvolution(
        3, 8, 16, 3, subm=True, bias=True, act_type=activation, act_alpha=0.3
    ).to(dtype)
    x, side = torch.randn(len(indices), 8).to(dtype), torch.randn(len(indices), 16).to(dtype)
    wide = copy.deepcopy(layer).double()
    with torch.no_grad(), _registry.force("reference"):
        expected = wide(tensor(x.double(), indices), tensor(side.double(), indices)).features
    layer = layer.to(DEVICE)
    with torch.no_grad(), on_kernels():
        out = layer(tensor(x.to(DEVICE), indices), tensor(side.to(DEVICE), indices)).features
    assert_close(out, expected, dtype)


def _pairs(indices: torch.Tensor) -> Any:
    x = tensor(torch.zeros(len(indices), 1, device=DEVICE), indices)
    with _registry.force("cuda" if GPU else "reference"):
        return x.coordinates.submanifold((3, 3, 3), (1, 1, 1))


@pytest.mark.parametrize("rows", [1, 63, 65, ROWS])
def test_tiles_hold_every_pair_once_and_rows_in_order_of_their_taps(rows: int) -> None:
    plans = importlib.import_module("sparse3d.cuda._plan")
    pairs = _pairs(sites(rows))
    plan = plans.make(pairs.src, pairs.dst, pairs.splits, rows, distinct=True)
    bm = plan.inputs.shape[1]
    found, orders = [], []
    lists = [value.cpu() for value in plan]
    for tile, count in enumerate(lists[3].tolist()):
        placed = lists[0][tile * bm : (tile + 1) * bm]
        orders.append(placed[placed >= 0])
        for entry in range(tile * 27, tile * 27 + count):
            source, tap = lists[1][entry], int(lists[2][entry])
            here = source >= 0
            assert bool(here.any())
            assert bool((placed[here] >= 0).all())
            taps = torch.full((int(here.sum()),), tap)
            found.append(torch.stack([taps, source[here].long(), placed[here].long()], 1))
        spare = slice(tile * 27 + count, (tile + 1) * 27)
        assert bool((lists[1][spare] == -1).all())
        assert bool((lists[2][spare] == -1).all())
    assert bool((lists[1][-1] == -1).all())
    assert int(lists[2][-1]) == -1
    order = torch.cat(orders)
    assert order.sort().values.tolist() == list(range(rows))
    expected = torch.stack([pairs.taps().cpu(), pairs.src.cpu().long(), pairs.dst.cpu().long()], 1)
    assert torch.equal(torch.cat(found).unique(dim=0), expected.unique(dim=0))
    assert len(torch.cat(found)) == len(expected)
    words = torch.zeros(rows, dtype=torch.int64)
    bits = 1 << plans.ranks(27, torch.device("cpu"))[expected[:, 0]].long()
    words.index_add_(0, expected[:, 2], bits)
    gray = words[order.long()]
    for shift in (1, 2, 4, 8, 16):
        gray ^= gray >> shift
    assert bool((gray.diff() >= 0).all())


def test_rows_that_repeat_each_other() -> None:
    """An unchecked tensor with repeats: each makes pairs of its own, several of a tap at a row."""
    indices = sites(40).repeat(3, 1)
    layer = spnn.SparseConv3d(4, 8, 3, 2, 1, bias=False)
    x = torch.randn(len(indices), 4)
    with _registry.force("reference"):
        leaf = x.double().requires_grad_()
        expected = copy.deepcopy(layer).double()(tensor(leaf, indices, check=False)).features
        (to_x,) = torch.autograd.grad(expected.sum(), leaf)
    with on_kernels():
        leaf = x.to(DEVICE).requires_grad_()
        out = layer.to(DEVICE)(tensor(leaf, indices, check=False)).features
        (found,) = torch.autograd.grad(out.sum(), leaf)
    assert_close(out, expected, torch.float32)
    assert_close(found, to_x, torch.float32, GRADIENT)


def test_shares_of_the_taps_and_wide_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps in shares, and 64-bit element numbers, give what the plain kernel gives."""
    conv = importlib.import_module("sparse3d.cuda.conv")
    tiles = importlib.import_module("sparse3d.cuda._tiles")
    indices = sites()
    pairs = _pairs(indices)
    x, w = torch.randn(len(indices), 32), torch.randn(48, 27, 32) / 30
    x, w = x.to(DEVICE), w.to(DEVICE)
    with on_kernels():
        plan = conv.Plan(*pairs.plan())
    lists = (pairs.src, pairs.dst, plan.bounds)
    for dtype in (torch.float32, torch.float16):
        values, kernel = x.to(dtype), w.to(dtype)
        for split in (1, 4):
            tile = tiles.ConvTile(32, 32, 4, 3, split)
            out = conv.run(values, kernel, plan, len(indices), 1, tile=tile)
            back = conv.run(out, kernel, plan, len(indices), 1, backward=True, tile=tile)
            monkeypatch.setattr(conv, "_WIDE", 0)
            conv._launch_of.cache_clear()
            again = conv.run(values, kernel, plan, len(indices), 1, tile=tile)
            other = conv.run(out, kernel, plan, len(indices), 1, backward=True, tile=tile)
            left = conv.weight_grad(values, out, *lists, 1)
            monkeypatch.undo()
            conv._launch_of.cache_clear()
            assert torch.equal(out, again)
            assert torch.equal(back, other)
            assert torch.equal(left, conv.weight_grad(values, out, *lists, 1))
            if split == 1:
                whole = out
            assert_close(out, whole.double(), dtype)


def test_the_gradient_of_a_pointwise_layer_asks_the_host_for_nothing() -> None:
    """Its map has no plan; bounds copied from the host would be no part of a CUDA graph."""
    conv = importlib.import_module("sparse3d.cuda.conv")
    rows = torch.arange(ROWS, dtype=torch.int32, device=DEVICE)
    x, up = torch.randn(ROWS, 8, device=DEVICE), torch.randn(ROWS, 4, device=DEVICE)
    unread = torch.empty(2, dtype=torch.int64, device="meta")
    found = conv._weight_grad(x, up, rows, rows, unread, [], [], 1)
    assert_close(found[:, 0], up.double().t() @ x.double(), torch.float32, GRADIENT)


def test_tiles_of_256_columns() -> None:
    """What wide layers of many rows run, with all that an epilogue adds, and backward."""
    conv, plans, tiles = (
        importlib.import_module(f"sparse3d.cuda.{name}") for name in ("conv", "_plan", "_tiles")
    )
    indices = sites()
    rows, pairs = len(indices), _pairs(indices)
    plan = plans.tiles_of(pairs.neighbours(), pairs.splits.to(DEVICE), 27, 128)
    wide, narrow = tiles.ConvTile(256, 64, 8, 4, 1), tiles.ConvTile(64, 32, 4, 3, 1)
    x = torch.randn(rows, 64, dtype=torch.float16, device=DEVICE)
    w = (torch.randn(256, 27, 64, device=DEVICE) / 20).half()
    side, bias = torch.randn(rows, 256, device=DEVICE).half(), torch.randn(256, device=DEVICE)
    ends = conv._Epilogue(bias, side, "relu")
    out, expected = (
        conv.run(x, w, plan, rows, 1, epilogue=ends, tile=tile) for tile in (wide, narrow)
    )
    assert_close(out, expected.double(), torch.float16)
    flipped = w.permute(2, 1, 0).contiguous()
    back, expected = (
        conv.run(x, flipped, plan, rows, 1, backward=True, tile=tile) for tile in (wide, narrow)
    )
    assert_close(back, expected.double(), torch.float16)


@pytest.fixture
def _tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("_tf32")
def test_tf32_where_torch_allows_it() -> None:
    net, indices = spnn.SubMConv3d(32, 64, 3, bias=False, groups=2), sites()
    x = torch.randn(len(indices), 32)
    with _registry.force("reference"):
        expected = run(copy.deepcopy(net).double(), x.double(), indices, True)
    with on_kernels():
        found = run(net.to(DEVICE), x.to(DEVICE), indices, True)
    for ours, theirs in zip(found, expected, strict=True):
        error = (ours.double().cpu() - theirs).norm() / theirs.norm()
        assert error <= 1e-3


@pytest.mark.parametrize("scale", [1e-20, 1e-4, 1e6, 1e30])
def test_float32_keeps_its_digits_at_any_size(scale: float) -> None:
    conv = importlib.import_module("sparse3d.cuda.conv")
    indices = sites()
    pairs = _pairs(indices)
    x, w = torch.randn(len(indices), 16).double(), torch.randn(16, 27, 16).double() / 20
    x[0] *= 1e-3
    with on_kernels():
        plan = conv.Plan(*pairs.plan())
    small, kernel = (x * scale).float().to(DEVICE), w.float().to(DEVICE)
    out = conv.run(small, kernel, plan, len(indices), 1)
    with _registry.force("reference"):
        exact = conv.conv_forward(
            small.double(), kernel.double(), pairs.src, pairs.dst, pairs.splits, [], [],
            len(indices), 1,
        )  # fmt: skip
    assert (out.double() - exact).norm() <= 1e-6 * exact.norm()


def test_same_bytes_twice() -> None:
    net, indices = spnn.SubMConv3d(16, 32, 3, bias=True).to(DEVICE), sites()
    x = torch.randn(len(indices), 16, device=DEVICE)
    with on_kernels():
        first, again = (run(net, x, indices, True) for _ in range(2))
    assert all(map(torch.equal, first, again))


def test_slices_and_odd_addresses() -> None:
    indices = sites()
    buffer = torch.randn(len(indices) * 9 + 1, device=DEVICE)
    odd, wide = buffer[1:].view(-1, 9), torch.randn(len(indices), 16, device=DEVICE)
    net = spnn.SubMConv3d(9, 8, 3, bias=False).to(DEVICE)
    half = spnn.SubMConv3d(8, 8, 3, bias=False).to(DEVICE)
    with on_kernels():
        for layer, x in ((net, odd), (half, wide[:, 8:])):
            (out,) = run(layer, x, indices, False)
            (expected,) = run(layer, x.clone(), indices, False)
            assert torch.equal(out, expected)


def test_nothing_in_nothing_out() -> None:
    for dtype in (torch.float32, torch.float16):
        for kind in ("submanifold", "strided", "inverse", "transposed", "pointwise"):
            net = KINDS[kind](8, 16).to(DEVICE, dtype)
            none = sites(4)[:0]
            with on_kernels():
                found = run(net, torch.zeros(0, 8, device=DEVICE, dtype=dtype), none, True)
            assert found[0].shape[0] == 0
            assert all(not value.any() for value in found[1:])


def test_maps_without_pairs_and_their_gradients() -> None:
    """The tables of `nn.capture`, whose pairs the device lists: forward and both gradients."""
    room = importlib.import_module("sparse3d.nn._room")
    indices = sites()
    indices = indices[indices[:, 0].argsort(stable=True)]
    rows = torch.cat([indices, room.nowhere(9, 4, torch.device("cpu"))])
    net = nn.Sequential(
        spnn.SubMConv3d(4, 8, 3, bias=False),
        spnn.SparseConv3d(8, 8, 2, 2, bias=False, indice_key="d", rule="floor"),
        spnn.SparseInverseConv3d(8, 4, 2, "d", bias=False),
    )
    features = torch.randn(len(rows), 4)
    features[len(indices) :] = 0
    with _registry.force("reference"):
        expected = run(copy.deepcopy(net), features[: len(indices)], indices, True)
    net, leaf = net.to(DEVICE), features.to(DEVICE).requires_grad_()
    with on_kernels():
        x = SparseConvTensor(leaf, rows.to(DEVICE), [32] * 3, 2, check=False)
        x._coordinates = room.Room(x.indices, [32] * 3, 2, room.Rooms())
        out = net(x).features
        up = torch.zeros_like(out)
        up[: len(indices)] = torch.linspace(-1, 1, 4 * len(indices)).view(-1, 4).to(out)
        found = torch.autograd.grad(out, [leaf, *net.parameters()], up)
    assert_close(out[: len(indices)], expected[0], torch.float32)
    assert_close(found[0][: len(indices)], expected[1], torch.float32, GRADIENT)
    for ours, theirs in zip(found[1:], expected[2:], strict=True):
        assert_close(ours, theirs, torch.float32, GRADIENT)


needs_gpu = pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")


@pytest.mark.cuda
@needs_gpu
def test_twenty_million_rows() -> None:
    """N * C beyond 2^31: forward and both gradients, looked at where addresses are largest."""
    rows, depth, width = 20_000_000, 128, 16
    places = torch.arange(rows, dtype=torch.int32, device="cuda")
    indices = torch.stack([torch.zeros_like(places), places], 1)
    x = torch.randn(rows, depth, dtype=torch.float16, device="cuda").requires_grad_()
    up = torch.randn(rows, width, dtype=torch.float16, device="cuda")
    layer = spnn.SubMConv1d(depth, width, 3, bias=False).half().cuda()
    out = layer(SparseConvTensor(x, indices, None, 1, check=False)).features
    to_x, to_weight = torch.autograd.grad(out, [x, layer.weight], up)
    last, weight = slice(rows - 1000, rows), layer.weight.detach().double()
    dense = nn.functional.conv1d(x.detach()[last].double().t(), weight.permute(0, 2, 1), padding=1)
    assert_close(out[last][1:], dense.t()[1:], torch.float16)
    back = nn.functional.conv_transpose1d(up[last].double().t(), weight.permute(0, 2, 1), padding=1)
    assert_close(to_x[last][1:], back.t()[1:], torch.float16, GRADIENT)
    centre = sum(
        u.float().t() @ v.float()
        for u, v in zip(up.split(10**6), x.detach().split(10**6), strict=True)
    )
    error = (to_weight[:, 1].float() - centre).norm() / centre.norm()
    assert error <= 2e-3


@pytest.mark.cuda
@needs_gpu
def test_the_feature_path_is_captured_as_it_is() -> None:
    """Over prepared maps a layer's launches go into a CUDA graph of the caller's."""
    indices = sites()
    net = nn.Sequential(
        spnn.SubMConv3d(16, 32, 3, indice_key="k"), spnn.SubMConv3d(32, 16, 3)
    ).cuda()
    x = tensor(torch.randn(len(indices), 16, device="cuda"), indices)
    with torch.no_grad():
        spnn.prepare(net, x)
        net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(x).features
        for _ in range(2):
            x.features.normal_()
            graph.replay()
            assert torch.equal(out, net(x).features)
