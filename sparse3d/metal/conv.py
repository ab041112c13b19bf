"""Sparse convolution on Metal: forward, both gradients, and the fused form."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ..ops._conv_reference import flat
from ..ops.conv import conv_forward, conv_fused, conv_input_grad, conv_weight_grad, scaled
from . import _plan, _shader
from ._plan import Plan

_ACTIVATIONS = {"none": 0, "relu": 4, "leaky_relu": 8, "sigmoid": 16}
_HAS_BIAS, _HAS_RESIDUAL = 1, 2
_SMALL = 8
"""Fewer channels than a fragment is deep: padding would cost more than the matrix units give."""

_COLUMNS = (8, 16, 24, 32, 64, 96, 128)
"""Output channels that a threadgroup may make."""

_GRAD_OUT, _GRAD_IN = (32, 64, 96), (16, 32, 48, 64)
"""Channels out and in of which a group of the weight gradient may make every pair."""

_GRAD_TILES = ((64, 64), (32, 64), (32, 32), (32, 16))
"""What it makes where that takes too many threads."""

_PARTIAL_BYTES = 64 << 20
"""Memory for the partial sums of a weight gradient at a time."""


class _Layer(NamedTuple):
    """One group's channels that are summed over and made, and how many taps and groups."""

    depth: int
    width: int
    taps: int
    groups: int
    backward: bool

    @property
    def small(self) -> bool:
        return self.depth < _SMALL or (self.groups > 1 and self.width < _SMALL)

    @property
    def macs(self) -> int:
        """Multiply-accumulates a pair."""
        return self.depth * self.width * self.groups


class _Epilogue(NamedTuple):
    """What is done to a sum before it is stored."""

    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    activation: str = "none"
    alpha: float = 0.0

    def arguments(self, like: torch.Tensor) -> tuple[int, torch.Tensor, torch.Tensor]:
        """Flags, and tensors to bind even where the kernel reads none."""
        flags = _ACTIVATIONS[self.activation]
        bias = torch.zeros(1, dtype=torch.float32, device=like.device)
        residual = like.new_zeros(1)
        if self.bias is not None:
            flags, bias = flags | _HAS_BIAS, _shader.packed(self.bias.float())
        if self.residual is not None:
            flags, residual = flags | _HAS_RESIDUAL, _shader.packed(self.residual.to(like.dtype))
        return flags, bias, residual


def fewest(sizes: tuple[int, ...], width: int) -> int:
    """The size of which the fewest cover a width; of equals, the one that pads least."""
    return min(sizes, key=lambda size: (-(-width // size), size))


def deepest(sizes: tuple[int, ...], depth: int) -> int:
    """Channels a step: the most of these, largest first, whose steps pad a depth by 15 % at most;
    where none does, the most of those that pad least."""
    return min(sizes, key=lambda size: max(1.15, -(-depth // size) * size / depth))


def vector(element_size: int, *channels: int) -> int:
    """Elements a load: 16 bytes, or 4 or 1 elements where the channel counts do not divide."""
    widths = (16 // element_size, 4, 1)
    return next(v for v in widths if all(c % v == 0 for c in channels))


def macros(layer: _Layer, dtype: torch.dtype) -> dict[str, Any]:
    """How conv.metal is specialised for a layer: tile sizes, pack width, element type."""
    size = dtype.itemsize
    # 128 columns save the second gather of a 64-column tile; 32 rows of them still fit 32 KB.
    bn = fewest(_COLUMNS, layer.width)
    bk = deepest((32, 16, 8) if size == 2 else (16, 8), layer.depth)
    return {
        "SP_ELEM": _shader.element(dtype),
        "SP_BACKWARD": int(layer.backward),
        "SP_VEC": min(vector(size, layer.depth, layer.width), bk),
        "SP_BM": 32 if bn > 64 else 64,
        "SP_BN": bn,
        "SP_BK": bk,
    }


def threads(made: dict[str, Any]) -> int:
    """Threads of a group: a simdgroup makes 32 rows x 16 columns, or 8 where those do not
    divide."""
    columns = int(made["SP_BN"])
    return int(made["SP_BM"]) * columns // (8 if columns % 16 else 16)


def _narrower(made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A layer's macros, then those of ever smaller tiles, which take fewer threads."""
    yield made
    for columns in (32, 16):
        if columns < made["SP_BN"]:
            yield {**made, "SP_BM": 64, "SP_BN": columns}
    yield {**made, "SP_BM": 32, "SP_BN": min(made["SP_BN"], 16)}


def _kernels(layer: _Layer, rows: torch.Tensor, name: str) -> tuple[_shader.Library, int]:
    """conv.metal for a layer, and how many threads a group of the kernel has."""
    choices = (
        (_shader.library("conv", **made), threads(made))
        for made in _narrower(macros(layer, rows.dtype))
    )
    return _shader.first_that_fits(rows, name, choices)


def _small_macros(layer: _Layer, dtype: torch.dtype) -> dict[str, Any]:
    return {"SP_ELEM": _shader.element(dtype), "SP_BACKWARD": int(layer.backward)}


def _grid(layer: _Layer, kernels: _shader.Library) -> tuple[int, int]:
    """Groups across the channels made, and rows of a group."""
    made = kernels.macros
    return layer.groups * -(-layer.width // int(made["SP_BN"])), int(made["SP_BM"])


def _by_tiles(
    rows: torch.Tensor,
    weight: torch.Tensor,
    plan: Plan,
    layer: _Layer,
    epilogue: _Epilogue,
    out: torch.Tensor,
) -> None:
    """Output-stationary: tiles of rows, each walking the taps present in it."""
    flags, bias, residual = epilogue.arguments(rows)
    lists = (plan.starts, plan.slots, plan.begins, plan.sources, plan.places, plan.rows)
    if layer.small:
        name, columns, parts = "sp_conv_small", -(-layer.width * layer.groups // 32), 1
        kernels = _shader.library("conv", **_small_macros(layer, rows.dtype))
        size = _shader.largest_group(rows, kernels, name, 64)
    else:
        name = "sp_conv"
        kernels, size = _kernels(layer, rows, name)
        columns, height = _grid(layer, kernels)
        parts = _plan.TILE // height
    pairs_a_tile = -(-plan.sources.numel() // plan.tiles)
    for first, last in _shader.spans(plan.tiles, pairs_a_tile * layer.macs):
        shape = [layer.depth, layer.width, layer.taps, layer.groups, flags, first]
        arguments = (rows, weight, *lists, bias, residual, out, shape, epilogue.alpha)
        count = (columns, (last - first) * parts)
        _shader.groups(kernels, name, *arguments, count=count, size=size)


def _by_taps(
    rows: torch.Tensor,
    weight: torch.Tensor,
    pairs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mirrored: bool,
    layer: _Layer,
    epilogue: _Epilogue,
    out: torch.Tensor,
) -> None:
    """Weight-stationary: a launch for each tap and its mirror; a mirrored centre has no gather."""
    src, dst, splits = pairs
    kernels, size = _kernels(layer, rows, "sp_conv_tap")
    columns, height = _grid(layer, kernels)
    bounds, count = splits.tolist(), out.shape[0]
    shape = [layer.depth, layer.width, layer.taps, layer.groups, 0, 0]
    sums = torch.zeros((1 + mirrored) * out.numel(), dtype=torch.float32, device=out.device)
    turns = [[t] for t in range(layer.taps)]
    if mirrored:
        turns = [[t, layer.taps - 1 - t] for t in range(layer.taps // 2)]
    for turn in turns:
        tiles = -(-max(bounds[t + 1] - bounds[t] for t in turn) // height)
        for first, last in _shader.spans(tiles, len(turn) * height * layer.macs):
            # A tap with fewer pairs than its mirror begins behind its end: nothing to do.
            ranges = [v for t in turn for v in (t, bounds[t] + first * height, bounds[t + 1])]
            arguments = (rows, weight, src, dst, sums, shape + ranges, count)
            grid = (columns, last - first, len(turn))
            _shader.groups(kernels, "sp_conv_tap", *arguments, count=grid, size=size)
    _finish(rows, weight, sums, mirrored, layer, epilogue, out)


def _finish(
    rows: torch.Tensor,
    weight: torch.Tensor,
    sums: torch.Tensor,
    mirrored: bool,
    layer: _Layer,
    epilogue: _Epilogue,
    out: torch.Tensor,
) -> None:
    """The sums of all taps, a mirrored centre's product and the epilogue; of a single tap, which
    is its own mirror, no sums are read."""
    flags, bias, residual = epilogue.arguments(rows)
    kernels, size = _kernels(layer, rows, "sp_conv_finish")
    (columns, height), count = _grid(layer, kernels), out.shape[0]
    for first, last in _shader.spans(-(-count // height), height * layer.macs):
        shape = [layer.depth, layer.width, layer.taps, layer.groups, flags, first]
        lists = (sums, bias, residual, out, shape, epilogue.alpha, count, int(mirrored))
        across = (columns, last - first)
        _shader.groups(kernels, "sp_conv_finish", rows, weight, *lists, count=across, size=size)


def _tap_bytes(splits: torch.Tensor, layer: _Layer, out: torch.Tensor, rows_a_tile: int) -> int:
    """Bytes of the weight-stationary dataflow: gathers, weights once a tile, sums in and out."""
    counts, size = splits.diff(), out.element_size()
    tiles = int((-(-counts // rows_a_tile)).sum())
    pairs, made = int(splits[-1]), layer.width * layer.groups
    return pairs * (layer.depth * layer.groups * size + 8 * made) + tiles * layer.macs * size


def _tile_bytes(plan: Plan, layer: _Layer, out: torch.Tensor, parts: int) -> int:
    """Device bytes of the output-stationary dataflow: gathers, and weights once a slot."""
    gathered = plan.sources.numel() * layer.depth * layer.groups
    return (gathered + parts * plan.slots.numel() * layer.macs) * out.element_size()


def _choose(plan: Plan, splits: torch.Tensor, layer: _Layer, out: torch.Tensor) -> str:
    """The dataflow that moves fewer bytes by count; tests/metal/test_traffic.py measures both."""
    if layer.small or plan.repeats:
        return "tiles"
    bm = macros(layer, out.dtype)["SP_BM"]
    tiles = _tile_bytes(plan, layer, out, _plan.TILE // bm)
    return "taps" if _tap_bytes(splits, layer, out, bm) < tiles else "tiles"


def run(
    rows: torch.Tensor,
    weight: torch.Tensor,
    pairs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    plan: list[torch.Tensor],
    count: int,
    groups: int,
    *,
    backward: bool = False,
    epilogue: _Epilogue = _Epilogue(),  # noqa: B008
    dataflow: str | None = None,
) -> torch.Tensor:
    """Sums over `pairs` (row, output row, splits) into `count` rows; `dataflow` forces one."""
    taps, inner = weight.shape[1], weight.shape[2]
    outer = weight.shape[0] // groups
    depth, width = (outer, inner) if backward else (inner, outer)
    layer = _Layer(depth, width, taps, groups, backward)
    out = torch.empty((count, width * groups), dtype=rows.dtype, device=rows.device)
    if out.numel() == 0:
        return out
    rows, weight = _shader.packed(rows), _shader.packed(weight)
    src, dst, splits = (pairs[0].contiguous(), pairs[1].contiguous(), pairs[2])
    if src.numel() == 0 or depth == 0:
        return _no_pairs(out, epilogue)
    made = Plan(*plan) if plan else _plan.make(src, dst, splits, count, mirrored=False)
    if (dataflow or _choose(made, splits, layer, out)) == "taps":
        _by_taps(rows, weight, (src, dst, splits), made.mirrored, layer, epilogue, out)
    else:
        _by_tiles(rows, weight, made, layer, epilogue, out)
    return out


def one_tap(rows: torch.Tensor, weight: torch.Tensor, *, backward: bool) -> torch.Tensor:
    """Every row times a weight [C_out, 1, C_in], or times it transposed."""
    inner, outer = weight.shape[2], weight.shape[0]
    layer = _Layer(*((outer, inner) if backward else (inner, outer)), 1, 1, backward)
    out = torch.empty((rows.shape[0], layer.width), dtype=rows.dtype, device=rows.device)
    if out.numel() and layer.depth:
        rows, weight = _shader.packed(rows), _shader.packed(weight)
        nothing = torch.zeros(1, dtype=torch.float32, device=rows.device)
        _finish(rows, weight, nothing, True, layer, _Epilogue(), out)
        return out
    return out.zero_()


def _no_pairs(out: torch.Tensor, epilogue: _Epilogue) -> torch.Tensor:
    total = torch.zeros(out.shape, dtype=torch.float32, device=out.device)
    if epilogue.bias is not None:
        total += epilogue.bias.float()
    if epilogue.residual is not None:
        total += epilogue.residual.float()
    if epilogue.activation == "relu":
        total = torch.relu(total)
    elif epilogue.activation == "leaky_relu":
        total = torch.nn.functional.leaky_relu(total, epilogue.alpha)
    elif epilogue.activation == "sigmoid":
        total = torch.sigmoid(total)
    return out.copy_(total)


def _takes(first: torch.Tensor, second: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(first, second)


@conv_forward.kernel("metal", when=_takes)
def _forward(
    features: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: list[torch.Tensor],
    grad_plan: list[torch.Tensor],
    num_out: int,
    groups: int,
) -> torch.Tensor:
    return run(features, weight, (src, dst, splits), plan, num_out, groups)


@conv_input_grad.kernel("metal", when=_takes)
def _input_grad(
    grad: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: list[torch.Tensor],
    grad_plan: list[torch.Tensor],
    num_in: int,
    groups: int,
) -> torch.Tensor:
    return run(grad, weight, (dst, src, splits), plan, num_in, groups, backward=True)


@conv_fused.kernel("metal", when=_takes)
def _fused(
    features: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: list[torch.Tensor],
    num_out: int,
    groups: int,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
    alpha: float,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    epilogue = _Epilogue(bias, residual, activation, alpha)
    weight = scaled(flat(weight), scale)
    return run(features, weight, (src, dst, splits), plan, num_out, groups, epilogue=epilogue)


@conv_weight_grad.kernel("metal", when=_takes)
def weight_grad(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: list[torch.Tensor],
    grad_plan: list[torch.Tensor],
    groups: int,
) -> torch.Tensor:
    """Sums of products of rows over the pairs of each tap."""
    taps, channels = splits.numel() - 1, grad.shape[1]
    inner = features.shape[1] // groups
    out = torch.zeros((channels, taps, inner), dtype=torch.float32, device=features.device)
    if src.numel() == 0 or out.numel() == 0:
        return out.to(features.dtype)
    lists = Plan(*plan)[6:8] if plan else _plan.chunks(splits, src.device)
    features, grad = _shader.packed(features), _shader.packed(grad)
    size = channels * inner
    step = max(1, _PARTIAL_BYTES // (4 * size))
    total = lists[0].numel() - 1
    add = _partial_sums(features, grad, src.contiguous(), dst.contiguous(), lists[0], groups)
    partial = torch.empty(min(step, total) * size, dtype=torch.float32, device=features.device)
    kernels = _shader.library("conv_grad", SP_ELEM=_shader.element(features.dtype))
    for first in range(0, total, step):
        last = min(first + step, total)
        add(partial, first, last)
        arguments = (partial, lists[1], out, size, inner, taps, first, last)
        _shader.each(kernels, "sp_weight_grad_sum", *arguments, threads=(size, taps))
    return out.to(features.dtype)


def _partial_sums(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    chunk: torch.Tensor,
    groups: int,
) -> Any:
    """A function that fills `partial` with the sums of chunks [first, last)."""
    inner, outer = features.shape[1] // groups, grad.shape[1] // groups
    elem = _shader.element(features.dtype)
    if min(inner, outer) < _SMALL:
        small = _shader.library("conv_grad", SP_ELEM=elem)

        def by_element(partial: torch.Tensor, first: int, last: int) -> None:
            lists = (features, grad, src, dst, chunk, partial, inner, outer, groups, first)
            threads = (groups * outer * inner, last - first)
            _shader.each(small, "sp_weight_grad_small", *lists, threads=threads)

        return by_element
    size = features.element_size()
    fixed = {
        "SP_ELEM": elem,
        "SP_VEC": vector(size, inner, outer),
        "SP_BP": 32 if size == 2 else 16,
    }
    widest = fewest(_GRAD_OUT, outer), fewest(_GRAD_IN, inner)
    tiles = [widest, *(t for t in _GRAD_TILES if t[0] <= widest[0] and t[1] <= widest[1])]
    choices = (
        (_shader.library("conv_grad", SP_BO=bo, SP_BI=bi, **fixed), bo * bi // 16)
        for bo, bi in tiles
    )
    kernels, threads = _shader.first_that_fits(features, "sp_weight_grad", choices)
    bo, bi = int(kernels.macros["SP_BO"]), int(kernels.macros["SP_BI"])
    grid = (-(-inner // bi), groups * -(-outer // bo))

    def by_matrix(partial: torch.Tensor, first: int, last: int) -> None:
        lists = (features, grad, src, dst, chunk, partial, inner, outer, groups, first)
        count = (*grid, last - first)
        _shader.groups(kernels, "sp_weight_grad", *lists, count=count, size=threads)

    return by_matrix
