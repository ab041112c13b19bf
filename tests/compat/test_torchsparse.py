"""The torchsparse stand-ins beyond the vectors: conventions, maps, faults on request, layers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as torch_functional

import sparse3d.compat.torchsparse as ts
import sparse3d.compat.torchsparse_1_4 as ts14
import sparse3d.nn as spnn
from sparse3d.compat.torchsparse.utils.collate import sparse_collate, sparse_collate_fn

SHAPE = (8, 7, 6)


def sites(rows: int = 90, batch: int = 2) -> torch.Tensor:
    cells = torch.randperm(batch * 8 * 7 * 6)[:rows]
    return torch.stack([cells // 336, cells // 42 % 8, cells // 6 % 7, cells % 6], 1).int()


def scene(channels: int = 4, **more: object) -> ts.SparseTensor:
    coords = sites()
    return ts.SparseTensor(torch.randn(len(coords), channels), coords, **more)  # type: ignore[arg-type]


def canonical(layer: ts.nn.Conv3d) -> torch.Tensor:
    """A kernel of odd volume as torch has it."""
    x, y, z = layer.kernel_size
    return layer.kernel.reshape(z, y, x, *layer.kernel.shape[-2:]).permute(4, 3, 2, 1, 0)


def dense_of(x: ts.SparseTensor) -> torch.Tensor:
    return spnn.SparseConvTensor(x.feats, x.coords, SHAPE, 2).dense()


def at(dense: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    return dense.movedim(1, -1)[coords.long().unbind(1)]


def test_dilation_is_honoured_and_ignored_on_request() -> None:
    x = scene()
    layer = ts.nn.Conv3d(4, 5, 3, dilation=2)
    dense = torch_functional.conv3d(dense_of(x), canonical(layer), padding=2, dilation=2)
    torch.testing.assert_close(layer(x).feats, at(dense, x.coords), rtol=1e-5, atol=1e-5)
    faulty = ts.nn.Conv3d(4, 5, 3, dilation=2, parity=True)
    faulty.load_state_dict(layer.state_dict())
    plain = torch_functional.conv3d(dense_of(x), canonical(layer), padding=1)
    torch.testing.assert_close(faulty(x).feats, at(plain, x.coords), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("stride", "padding"), [(2, 1), (2, 0), (3, 1)])
def test_strided_equals_dense_in_the_stated_range(stride: int, padding: int) -> None:
    x = scene(spatial_range=(2, *SHAPE))
    layer = ts.nn.Conv3d(4, 5, 3, stride=stride, padding=padding, bias=True)
    out = layer(x)
    dense = torch_functional.conv3d(dense_of(x), canonical(layer), layer.bias, stride, padding)
    assert out.spatial_range == (2, *dense.shape[2:])
    torch.testing.assert_close(out.feats, at(dense, out.coords), rtol=1e-5, atol=1e-5)
    assert out.dense().shape == (2, *dense.shape[2:], 5)


def test_maps_are_kept_with_regard_to_padding_unless_asked() -> None:
    x = scene(spatial_range=(2, *SHAPE))
    first, second = (ts.nn.Conv3d(4, 4, 3, stride=2, padding=p)(x) for p in (1, 0))
    assert len(first.feats) != len(second.feats)
    x = scene(spatial_range=(2, *SHAPE))
    first, second = (ts.nn.Conv3d(4, 4, 3, stride=2, padding=p, parity=True)(x) for p in (1, 0))
    assert torch.equal(first.coords, second.coords)


def test_crop_compares_xyz_unless_asked() -> None:
    x = scene()
    kept = ts.nn.SparseCrop((1, 1, 1), (4, 4, 4))(x).coords
    assert bool(((kept[:, 1:] >= 1) & (kept[:, 1:] < 4)).all())
    assert set(kept[:, 0].tolist()) == {0, 1}
    faulty = ts.nn.SparseCrop((1, 1, 1), (4, 4, 4), parity=True)(x).coords
    assert set(faulty[:, 0].tolist()) == {1}


def test_versions_agree_on_a_network() -> None:
    """The same network, weights and scene: other columns, other units, equal features."""
    coords = sites()
    feats = torch.randn(len(coords), 4)
    models = []
    for peer in (ts, ts14):
        torch.manual_seed(5)
        models.append(peer.backbones.SparseResUNet42(in_channels=4, width_multiplier=0.1).eval())
    models[1].load_state_dict(models[0].state_dict())
    new = models[0](ts.SparseTensor(feats, coords))
    old = models[1](ts14.SparseTensor(feats, coords[:, [1, 2, 3, 0]]))
    for left, right in zip(new, old, strict=True):
        assert left.stride == right.stride
        torch.testing.assert_close(left.feats, right.feats)
        unit = torch.tensor(left.stride)
        assert torch.equal(left.coords[:, 1:] * unit, right.coords[:, :3])
        assert torch.equal(left.coords[:, 0], right.coords[:, 3])
    assert new[-1].coords is new[0].coords


def test_generative_layer_makes_every_finer_site() -> None:
    x = scene(spatial_range=(2, *SHAPE))
    layer = ts.nn.Conv3d(4, 3, 2, stride=2, transposed=True, generative=True)
    coarse = ts.nn.Conv3d(4, 4, 2, stride=2)(x)
    out = layer(coarse)
    assert out.stride == (1, 1, 1)
    assert len(out.feats) == 8 * len(coarse.feats)
    with pytest.raises(ValueError, match="after a strided one with kernel_size"):
        ts.nn.Conv3d(4, 3, 3, stride=2, transposed=True)(coarse)


def test_norms_equal_torch_on_each_sample() -> None:
    x = scene()
    group, instance = ts.nn.GroupNorm(2, 4), ts.nn.InstanceNorm(4)
    torch.nn.init.normal_(group.weight)
    torch.nn.init.normal_(group.bias)
    for batch in range(2):
        rows = x.coords[:, 0] == batch
        sample = x.feats[rows].t()[None]
        wanted = torch_functional.group_norm(sample, 2, group.weight, group.bias)
        torch.testing.assert_close(group(x).feats[rows], wanted[0].t(), rtol=1e-5, atol=1e-5)
        wanted = torch_functional.instance_norm(sample)
        torch.testing.assert_close(instance(x).feats[rows], wanted[0].t(), rtol=1e-5, atol=1e-5)
    norm = ts.nn.BatchNorm(4)
    torch.testing.assert_close(norm(x).feats, torch.nn.BatchNorm1d(4)(x.feats))


def test_birds_eye_layers() -> None:
    x = scene()
    dense = dense_of(x)
    tall = ts.nn.ToBEVHeightCompression(4, SHAPE, dim=2)(x)
    wanted = dense.permute(0, 4, 1, 2, 3).flatten(1, 2)
    torch.testing.assert_close(tall, wanted)
    layer = ts.nn.ToDenseBEVConvolution(4, 3, SHAPE, dim=2)
    wanted = torch.einsum("bcxyz,zco->boxy", dense, layer.kernel)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-5, atol=1e-5)
    flat = ts.nn.ToBEVConvolution(4, 3, 6, dim=2)
    flat.load_state_dict({"kernel": layer.kernel.detach()})
    out = flat(x)
    assert not out.coords[:, 3].any()
    grid = spnn.SparseConvTensor(out.feats, out.coords[:, :3].contiguous(), SHAPE[:2], 2).dense()
    torch.testing.assert_close(grid, wanted, rtol=1e-5, atol=1e-5)
    mean = ts.nn.ToBEVReduction(dim=2)(x)
    count = (dense.abs().sum(1) > 0).sum(-1).clamp(min=1)
    wanted = dense.sum(-1) / count[:, None]
    got = spnn.SparseConvTensor(mean.feats, mean.coords[:, :3].contiguous(), SHAPE[:2], 2).dense()
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_dense_grids_of_rows() -> None:
    """By the name that the peer's own tests import, which is a function and a module."""
    from sparse3d.compat.torchsparse.utils import to_dense
    from sparse3d.compat.torchsparse.utils.to_dense import to_dense as same

    x = scene()
    assert to_dense is same
    assert torch.equal(to_dense(x.feats, x.coords, (2, *SHAPE)), dense_of(x).movedim(1, -1))


def test_layers_of_version_1_4_state_no_padding() -> None:
    """Networks for 2.0, whose coordinates are 1.4's, name it all the same."""
    layer = ts14.nn.Conv3d(4, 5, 3, 2, padding=(0, 0, 0), config=None)
    assert layer.stride == (2, 2, 2)
    with pytest.raises(ValueError, match=r"padding must be 0 in version 1\.4, got 1"):
        ts14.nn.Conv3d(4, 5, 3, padding=1)


def test_ranges_may_have_more_entries() -> None:
    """The peer's own detectors state (B, X, Y, Z, C); it reads the first four."""
    layer = ts.nn.Conv3d(4, 5, 3, stride=2, padding=1)
    plain = scene(spatial_range=(2, *SHAPE))
    wide = ts.SparseTensor(plain.feats, plain.coords, spatial_range=(2, *SHAPE, 4))
    assert torch.equal(wide.dense(), plain.dense())
    out = layer(wide)
    assert out.spatial_range == layer(plain).spatial_range == (2, 4, 4, 3)
    assert torch.equal(out.feats, layer(plain).feats)
    back = ts.nn.Conv3d(5, 2, 3, stride=2, transposed=True)(out)
    assert back.spatial_range == (2, *SHAPE, 4)
    finer = ts.nn.Conv3d(4, 2, 2, stride=2, transposed=True, generative=True)
    coarse = ts.SparseTensor(plain.feats, plain.coords, 2, (2, *SHAPE, 4))
    assert finer(coarse).spatial_range == (2, 16, 14, 12)


def test_joins_and_collation() -> None:
    x = scene()
    joined = ts.cat([x, x])
    assert torch.equal(joined.feats, torch.cat([x.feats, x.feats], 1))
    other = ts.SparseTensor(torch.randn(50, 4), sites(50))
    total = ts.generative_add(x, other)
    torch.testing.assert_close(
        spnn.SparseConvTensor(total.feats, total.coords, SHAPE, 2).dense(),
        dense_of(x) + spnn.SparseConvTensor(other.feats, other.coords, SHAPE, 2).dense(),
    )
    parts = [sites(5, 1)[:, 1:], sites(7, 1)[:, 1:]]
    for peer, column in ((ts, 0), (ts14, 3)):
        samples = [peer.SparseTensor(torch.ones(len(p), 2), p) for p in parts]
        batch = sparse_collate(samples)
        assert batch.coords[:, column].tolist() == [0] * 5 + [1] * 7
        made = sparse_collate_fn([{"x": s, "name": "a", "y": torch.ones(2)} for s in samples])
        assert isinstance(made["x"], peer.SparseTensor)
        assert made["y"].shape == (2, 2)
        assert made["name"] == ["a", "a"]


def test_half_means_of_crowded_voxels_are_rounded_once() -> None:
    rows, counts = torch.zeros(70_000, dtype=torch.int32), torch.tensor([70_000])
    ones = torch.ones(70_000, 2, dtype=torch.float16)
    assert ts14.nn.functional.spvoxelize(ones, rows, counts).tolist() == [[1.0, 1.0]]
    shares = ts.backend.voxelize_backward_cpu(ones[:1], rows, counts, 70_000)
    assert torch.equal(shares, torch.full_like(ones, 1 / 70_000))


def test_point_voxel_round_trip_of_version_1_4() -> None:
    """As point-voxel networks call it: hash, query, trilinear weights, devoxelise."""
    functional = ts14.nn.functional
    points = torch.rand(200, 3) * 5
    batch = torch.zeros(200, 1)
    z = ts14.PointTensor(torch.randn(200, 4), torch.cat([points, batch], 1))
    cells = torch.cat([points.floor(), batch], 1).int()
    hashes = functional.sphash(cells)
    kept = torch.unique(hashes)
    rows = functional.sphashquery(hashes, kept)
    counts = functional.spcount(rows.int(), len(kept))
    places = torch.round(functional.spvoxelize(cells.float(), rows, counts)).int()
    x = ts14.SparseTensor(functional.spvoxelize(z.F, rows, counts), places)
    offsets = ts14.nn.utils.get_kernel_offsets(2, x.s, 1)
    near = functional.sphashquery(functional.sphash(cells, offsets), functional.sphash(x.C))
    weights = functional.calc_ti_weights(z.C, near, scale=x.s[0])
    out = functional.spdevoxelize(x.F, near.t().contiguous(), weights.t().contiguous())
    torch.testing.assert_close(weights.sum(0), torch.ones(200), rtol=0, atol=1e-2)
    point = 17
    wanted = sum(weights[k, point] * x.F[near[k, point]] for k in range(8) if near[k, point] >= 0)
    torch.testing.assert_close(out[point], wanted)


def test_weights_of_corners_stand_as_each_version_has_them() -> None:
    """2.1 takes and gives [N, 8], 1.4 [8, N]."""
    points = torch.rand(5, 3) * 3
    near = torch.arange(40).reshape(5, 8)
    near[2, 3] = -1
    by_hand = torch.ones(5, 8)
    for corner, (i, j, k) in enumerate(itertools.product((0, 1), repeat=3)):
        for axis, upper in enumerate((i, j, k)):
            part = points[:, axis] - points[:, axis].floor()
            by_hand[:, corner] *= part if upper else 1 - part
    by_hand[near < 0] = 0
    by_hand /= by_hand.sum(1, keepdim=True) + 1e-8
    new, old = ts.nn.functional.calc_ti_weights, ts14.nn.functional.calc_ti_weights
    torch.testing.assert_close(new(points, near), by_hand)
    torch.testing.assert_close(old(points, near.t()), by_hand.t())
    with pytest.raises(ValueError, match=r"idx_query must be of shape \[5, 8\], got \[8, 5\]"):
        new(points, near.t())


def test_hash_table_of_the_compiled_backend() -> None:
    """As point-voxel networks written for 2.1 call it."""
    table = ts.backend.GPUHashTable(
        torch.zeros(60, dtype=torch.int64), torch.zeros(60, dtype=torch.int32)
    )
    cells = torch.unique(torch.randint(-4, 5, (30, 4), dtype=torch.int32), dim=0)
    table.insert_coords(cells)
    again = ts.backend.GPUHashTable(table._keys, table._values)
    rows = {tuple(cell): number for number, cell in enumerate(cells.tolist(), 1)}
    for size, steps in (((2, 2, 2), (1, 1, 1)), ((3, 1, 3), (1, 2, 1)), ((1, 1, 1), (1, 1, 1))):
        volume = math.prod(size)
        found = again.lookup_coords(cells, torch.tensor(size), torch.tensor(steps), volume)
        assert found.shape == (128, volume)
        assert found.dtype == torch.int32
        offsets = ts.nn.utils.get_kernel_offsets(size).tolist()
        for row, cell in enumerate(cells.tolist()):
            for tap, offset in enumerate(offsets):
                moved = [c * s + o for c, s, o in zip(cell, steps, offset, strict=False)]
                assert found[row, tap] == rows.get((*moved, cell[3]), 0)
        assert not found[len(cells) :].any()
    assert not ts.backend.GPUHashTable(8).lookup_vals(torch.arange(3)).any()
    narrow = ts.backend.GPUHashTable32(8)
    narrow.insert_vals(torch.tensor([7, 9, 7], dtype=torch.int32))
    assert narrow.lookup_vals(torch.tensor([9, 7, 8], dtype=torch.int32))[:3].tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="keys must be at most 8, the table's capacity, got 9"):
        narrow.insert_vals(torch.arange(9, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"keys and values must be torch.int64 and torch.int32"):
        ts.backend.GPUHashTable(torch.zeros(4), torch.zeros(4, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"kernel_volume must be 8, of \[2, 2, 2\], got 27"):
        again.lookup_coords(cells, torch.tensor([2, 2, 2]), torch.tensor([1, 1, 1]), 27)


@pytest.mark.parametrize("peer", [ts, ts14])
def test_compiled_functions_by_name(peer: Any) -> None:
    backend, functional = peer.backend, peer.nn.functional
    cells = torch.randint(0, 4, (20, 4), dtype=torch.int32)
    keys = backend.hash_cpu(cells)
    assert torch.equal(keys, functional.sphash(cells))
    kept = torch.unique(keys)
    rows = functional.sphashquery(keys, kept)
    assert torch.equal(backend.hash_query_cpu(keys, kept, torch.arange(len(kept))), rows + 1)
    assert backend.hash_query_cuda(keys + 1, kept, torch.arange(len(kept))).tolist() == [0] * 20
    offsets = torch.tensor([[0, 0, 0], [1, 0, 2]], dtype=torch.int32)
    moved = backend.kernel_hash_cpu(cells, offsets)
    assert torch.equal(moved[1], backend.hash_cpu(cells + torch.tensor([1, 0, 2, 0]).int()))
    counts = backend.count_cpu(rows.int(), len(kept))
    assert torch.equal(counts, torch.bincount(rows, minlength=len(kept)).int())
    feats = torch.randn(20, 3, requires_grad=True)
    made = backend.voxelize_forward_cpu(feats, rows.int(), counts)
    grad = torch.randn_like(made)
    (wanted,) = torch.autograd.grad(made, feats, grad)
    got = backend.voxelize_backward_cpu(grad, rows.int(), counts, 20)
    torch.testing.assert_close(got, wanted)
    corners, weights = torch.randint(-1, len(kept), (20, 8)), torch.rand(20, 8)
    voxels = made.detach().requires_grad_()
    out = backend.devoxelize_forward_cpu(voxels, corners, weights)
    grad = torch.randn_like(out)
    (wanted,) = torch.autograd.grad(out, voxels, grad)
    got = backend.devoxelize_backward_cpu(grad, corners, weights, len(kept))
    torch.testing.assert_close(got, wanted)


def test_tensor_methods_change_and_return_it() -> None:
    x = scene()
    assert x.half() is x
    assert x.feats.dtype == torch.float16
    x.F = torch.zeros(90, 2)
    x.s = 2
    assert x.stride == (2, 2, 2)
    assert x.cpu() is x
    with pytest.raises(ValueError, match=r"spatial_range must be stated for dense\(\)"):
        x.dense()


def test_the_default_configuration_is_copied_and_may_be_written() -> None:
    from sparse3d.compat.torchsparse.nn.functional.conv import conv_config

    default = conv_config._default_conv_config
    own = default.copy()
    own.downsample_mode = "minkowski"
    assert (type(own), default.downsample_mode) == (conv_config.AttributeDict, "spconv")
    default.downsample_mode = "minkowski"
    try:
        assert conv_config.resolved(None).downsample_mode == conv_config.get_downsample_mode()
        assert conv_config.get_downsample_mode() == "minkowski"
        assert conv_config.resolved({"downsample_mode": "spconv"}).downsample_mode == "spconv"
    finally:
        conv_config.set_downsample_mode("spconv")
    twice = conv_config.get_default_conv_config(conv_config.ConvMode.mode2)
    assert (twice.ifsort, twice.split_mask_num) == (True, 3)
    assert (default.ifsort, default.split_mask_num) == (False, 1)


@pytest.mark.parametrize(
    ("size", "stride", "padding", "bounds", "agree"),
    [
        (3, 2, 0, None, True),
        (3, 2, 1, None, True),
        (3, 2, 1, (2, 8, 8, 8), True),
        (3, 1, 0, None, True),
        (2, 2, 0, None, True),
        (2, 2, 1, None, False),
        (2, 2, 0, (2, 7, 7, 7), False),
    ],
)
def test_kmap_modes_agree_but_where_the_kernel_is_the_stride(
    size: int, stride: int, padding: int, bounds: tuple[int, ...] | None, agree: bool
) -> None:
    places = torch.cartesian_prod(torch.arange(2), *[torch.arange(7)] * 3).int()[::3]
    feats, weight = torch.randn(len(places), 2), torch.randn(size**3, 2, 3)
    made = []
    for mode in ("hashmap_on_the_fly", "hashmap"):
        x = ts.SparseTensor(feats, places, spatial_range=bounds)
        config = {"kmap_mode": mode}
        out = ts.nn.functional.conv3d(x, weight, size, None, stride, padding, config=config)
        rows = [tuple(row) for row in out.C.tolist()]
        made.append(dict(zip(rows, out.F, strict=True)))
    cells = {(b, *(int(v) // stride for v in place)) for b, *place in places.tolist()}
    assert (made[0].keys() == made[1].keys()) == agree
    if size == stride:
        assert made[1].keys() == cells
    if agree:
        assert all(torch.allclose(value, made[1][row]) for row, value in made[0].items())


def around(
    x: ts.SparseTensor, kernel: torch.Tensor, stride: Any, out: torch.Tensor
) -> torch.Tensor:
    """What a kernel [out, in, *size] that lies around its site sums up at sites (b, x, y, z)."""
    rows = {tuple(place): feats for place, feats in zip(x.coords.tolist(), x.feats, strict=True)}
    steps = (stride,) * 3 if isinstance(stride, int) else stride
    taps = list(itertools.product(*map(range, kernel.shape[2:])))
    made = []
    for batch, *site in out.tolist():
        total = torch.zeros(kernel.shape[0])
        for tap in taps:
            axes = zip(site, steps, tap, kernel.shape[2:], strict=True)
            feats = rows.get((batch, *(q * s + t - (k - 1) // 2 for q, s, t, k in axes)))
            if feats is not None:
                total = total + kernel[(slice(None), slice(None), *tap)] @ feats
        made.append(total)
    return torch.stack(made)


@pytest.mark.parametrize(
    ("size", "stride"), [(3, 2), (3, 3), (5, 2), ((3, 1, 3), (2, 1, 1)), (3, 1)]
)
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("bounded", [True, False])
def test_the_hash_map_centres_kernels_on_request(
    size: Any, stride: Any, padding: int, bounded: bool
) -> None:
    """The peer's fault: the padding makes the sites, the kernel lies around them all the same."""
    x = scene(spatial_range=(2, *SHAPE)) if bounded else scene()
    layer = ts.nn.Conv3d(4, 5, size, stride=stride)

    def made(mode: str, parity: bool) -> ts.SparseTensor:
        fresh = ts.SparseTensor(x.feats, x.coords, spatial_range=x.spatial_range)
        config = {"kmap_mode": mode}
        return ts.nn.functional.conv3d(
            fresh, layer.kernel, size, None, stride, padding, config=config, parity=parity
        )

    out, plain = made("hashmap", True), made("hashmap", False)
    assert torch.equal(out.coords, plain.coords)
    assert out.spatial_range == plain.spatial_range
    wanted = around(x, canonical(layer), stride, out.coords)
    torch.testing.assert_close(out.feats, wanted, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(out.feats.square().sum(), layer.kernel)
    (expected,) = torch.autograd.grad(wanted.square().sum(), layer.kernel)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
    if padding == 0 and stride in (2, 3):  # the switch and the mode both matter
        assert not torch.allclose(plain.feats, wanted, atol=1e-3)
        other = made("hashmap_on_the_fly", True)
        assert len(other.feats) != len(wanted) or not torch.allclose(other.feats, wanted, atol=1e-3)


@pytest.mark.parametrize("parity", [False, True])
def test_a_map_by_hand_is_that_of_its_layer(parity: bool) -> None:
    """`build_kernel_map` restores the fault of the "hashmap" mode where the layer does."""
    x = scene()
    sizes, config = {"kernel_size": 3, "stride": 2, "padding": 0}, {"kmap_mode": "hashmap"}
    build = ts.nn.functional.build_kernel_map
    made = build(x.coords, len(x.coords), **sizes, mode="hashmap", parity=parity)
    layer = ts.nn.Conv3d(4, 5, **sizes, config=config, parity=parity)
    table, kernel = made["out_in_map"], layer.canonical_kernel().flatten(1, 3)
    wanted = torch.zeros(len(made["coords"]), 5)
    for row, tap in (table >= 0).nonzero().tolist():
        wanted[row] += kernel[:, tap] @ x.feats[table[row, tap]]
    out = layer(x)
    assert torch.equal(out.coords, made["coords"])
    torch.testing.assert_close(out.feats, wanted)
    other = build(x.coords, len(x.coords), **sizes, mode="hashmap", parity=not parity)
    assert not torch.equal(other["out_in_map"], table)


@pytest.mark.parametrize("peer", [ts, ts14])
def test_a_network_in_inference_mode(peer: Any) -> None:
    """Also on coordinates made there, without an edit counter; edits are noticed all the same."""
    plain = sites() if peer is ts else sites().roll(-1, 1)
    feats = torch.randn(len(plain), 4)
    model = torch.nn.Sequential(
        peer.nn.Conv3d(4, 5, 3),
        peer.nn.Conv3d(5, 6, 2, stride=2),
        peer.nn.Conv3d(6, 6, 3),
        peer.nn.Conv3d(6, 4, 2, stride=2, transposed=True),
    )
    expected = model(peer.SparseTensor(feats, plain)).feats
    with torch.inference_mode():
        x = peer.SparseTensor(feats.clone(), plain.clone())
        torch.testing.assert_close(model(x).feats, expected)
        fewer = x.coords[:, 1] // 2
        x.coords[:, 1] = fewer
        fresh = peer.SparseTensor(feats, x.coords.clone())
        torch.testing.assert_close(model[0](x).feats, model[0](fresh).feats)
