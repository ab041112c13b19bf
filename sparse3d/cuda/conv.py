"""Sparse convolution on NVIDIA GPUs: forward, both gradients, and the fused form.

float32 is three products of float16 terms (`_triton_terms`), or tf32 where
`torch.backends.cuda.matmul.allow_tf32` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from ..ops._conv_reference import flat
from ..ops.conv import conv_forward, conv_fused, conv_input_grad, conv_weight_grad, scaled
from . import _plan
from . import _triton_conv as conv_kernels
from . import _triton_grad as grad_kernels
from ._launcher import Bound, Launcher, Variant, aligned
from ._plan import Plan
from ._terms import in_terms, vector
from ._tiles import ConvTile, GradTile, conv_tile, grad_tile

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_ACTIVATIONS = {"none": 0, "relu": 1, "leaky_relu": 1, "sigmoid": 2}
_WIDE = 1 << 31
_I32, _I64, _F32 = torch.int32, torch.int64, torch.float32

_conv = Launcher(conv_kernels.conv_tiles)
_finish = Launcher(conv_kernels.finish_splits)
_channels = Launcher(conv_kernels.conv_channels)
_parts = Launcher(grad_kernels.weight_grad_parts)
_finish_grad = Launcher(grad_kernels.finish_weight_grad)


class _Epilogue(NamedTuple):
    """What is done to a sum before it is stored."""

    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    activation: str = "none"
    alpha: float = 0.0

    @property
    def has(self) -> int:
        return int(self.bias is not None)

    @property
    def adds(self) -> bool:
        return self.residual is not None

    @property
    def act(self) -> int:
        return _ACTIVATIONS[self.activation]

    @property
    def slope(self) -> float:
        return self.alpha if self.activation == "leaky_relu" else 0.0


_PLAIN = _Epilogue()


def _terms_of(dtype: torch.dtype) -> int:
    """How many products make one: three float16 ones for float32."""
    return 3 if dtype == _F32 and not torch.backends.cuda.matmul.allow_tf32 else 1


class _Launch(NamedTuple):
    """A kernel over tiles: grid, numbers as it takes them, shares of the taps."""

    kernel: Bound
    grid: tuple[int, int, int]
    scalars: tuple[float, ...]
    split: int


@cache
def _shared(device: int) -> int:
    """Bytes of shared memory that a block may have; none where kernels are interpreted."""
    if device < 0:
        return 0
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 0))


@lru_cache(1024)
def _launch_of(
    shapes: tuple[torch.Size, torch.Size, torch.Size],
    tiles: int,
    rows: int,
    groups: int,
    backward: bool,
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None, torch.dtype | None],
    activation: str,
    alpha: float,
    terms: int,
    device: int,
    forced: ConvTile | None,
) -> _Launch:
    """All that a launch over tiles depends on, addresses apart.

    Args:
        shapes: of features, weight and the inputs of a plan.
        tiles: of the plan.
        rows: of the output.
        groups: of channels.
        backward: the sum is that of an input gradient.
        dtypes: of operands, output, bias and residual; None for what is not there.
        activation: of the epilogue.
        alpha: slope of leaky_relu below zero.
        terms: products that make one.
        device: its number.
        forced: a tile instead of the one that the table names.
    """
    (operand, out_dtype, bias, residual), taps = dtypes, math.prod(shapes[1][1:-1])
    depth, width, bm = *_sides(shapes[1], groups, backward), shapes[2][1]
    # tf32 matrix units read both operands along the inner axis only: the weight is turned before.
    backward = backward and operand != _F32
    wide = max(shapes[0].numel() * (1 if terms == 1 else 2), 2 * shapes[1].numel()) >= _WIDE
    tile = forced or conv_tile(tiles, bm, depth, width, groups, terms, _shared(device))
    inner, channels = (width, depth) if backward else (depth, width)
    halves = 2 if terms == 3 else 1  # a row's low terms follow its high ones
    x_row, inner, x_low, w_low = depth * groups * halves, inner * halves, 0, 0
    if terms == 3:
        x_low, w_low = depth * groups, inner // 2
    w_row = taps * inner
    step = vector(depth, width, x_row, x_low, w_low)
    even = depth % tile.bk == 0 and width % tile.bn == 0
    sizes = (bm, tile.bn, tile.bk, tile.stages)
    constants = (step, residual is not None, even, backward, terms, wide, *sizes)
    kinds = (operand, operand, out_dtype, bias or out_dtype, residual or out_dtype, _F32)
    scalars = (
        tiles,
        rows,
        (shapes[2][0] - 1) // tiles,
        tile.split,
        depth // step,
        width // step,
        x_row // step,
        x_low // step,
        width * groups // step,
        width * groups,
        w_row // step,
        inner // step,
        channels * w_row // step,
        w_low // step,
        int(bias is not None),
        _ACTIVATIONS[activation],
        alpha if activation == "leaky_relu" else 0.0,
    )
    grid = (tiles * -(-width // tile.bn), tile.split, groups)
    kernel = _conv.bound(Variant((*kinds, *[_I32] * 5), constants, tile.warps), device)
    return _Launch(kernel, grid, scalars, tile.split)


def _sides(weight: torch.Size, groups: int, backward: bool) -> tuple[int, int]:
    """One group's channels that are summed over, and that are made."""
    made, inner = weight[0], weight[-1]
    return (made // groups, inner) if backward else (inner, made // groups)


def run(
    rows: torch.Tensor,
    weight: torch.Tensor,
    plan: Sequence[torch.Tensor],
    count: int,
    groups: int,
    *,
    backward: bool = False,
    epilogue: _Epilogue = _PLAIN,
    tile: ConvTile | None = None,
) -> torch.Tensor:
    """Sums into `count` rows by a plan; `tile` forces a choice."""
    shape = weight.shape
    out = rows.new_empty(count, shape[-1] * groups if backward else shape[0])
    if count == 0 or out.shape[1] == 0:
        return out
    rows, weight = aligned(rows.contiguous()), aligned(weight.contiguous())
    if epilogue is not _PLAIN:
        bias, residual = epilogue.bias, epilogue.residual
        epilogue = epilogue._replace(
            bias=None if bias is None else aligned(bias.contiguous()),
            residual=None if residual is None else aligned(residual.contiguous()),
        )
    if groups > 1 and _sides(shape, groups, backward) == (1, 1):
        _by_channels(rows, weight, plan, out, epilogue)
    else:
        _by_tiles(rows, weight, plan, groups, backward, out, epilogue, tile)
    return out


def _by_tiles(
    x: torch.Tensor,
    weight: torch.Tensor,
    plan: Sequence[torch.Tensor],
    groups: int,
    backward: bool,
    out: torch.Tensor,
    epilogue: _Epilogue,
    forced: ConvTile | None,
) -> None:
    rows, inputs, listed, filled = plan[:4]
    shapes = (x.shape, weight.shape, inputs.shape)
    terms, device = _terms_of(x.dtype), x.get_device()
    largest = partial = None
    if terms == 3:
        x, weight, largest = in_terms(x, weight)
    elif backward and x.dtype == _F32:
        depth, width = _sides(weight.shape, groups, backward)
        turned = weight.reshape(groups, depth, -1, width)
        weight = turned.permute(0, 3, 2, 1).contiguous()
    bias, residual = epilogue.bias, epilogue.residual
    launch = _launch_of(
        shapes,
        filled.shape[0],
        out.shape[0],
        groups,
        backward,
        (
            x.dtype,
            out.dtype,
            None if bias is None else bias.dtype,
            None if residual is None else residual.dtype,
        ),
        epilogue.activation,
        epilogue.alpha,
        terms,
        device,
        forced,
    )
    if launch.split > 1:
        partial = torch.empty((launch.split, *out.shape), dtype=_F32, device=out.device)
    tensors = (x, weight, out, bias, residual, partial, rows, inputs, listed, filled, largest)
    launch.kernel(launch.grid, tensors, launch.scalars)
    if partial is not None:
        _finish_splits(partial, out, epilogue, device)


def _dtypes(epilogue: _Epilogue, out: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """Element types of bias and residual; those that are not there count as the output's."""
    bias, residual = epilogue.bias, epilogue.residual
    return out if bias is None else bias.dtype, out if residual is None else residual.dtype


def _finish_splits(
    partial: torch.Tensor, out: torch.Tensor, epilogue: _Epilogue, device: int
) -> None:
    rows, width = out.shape
    step = vector(width)
    bn = min(128, max(16, 1 << (width - 1).bit_length()))
    bm = 2048 // bn
    variant = Variant(
        (_F32, out.dtype, *_dtypes(epilogue, out.dtype)), (step, epilogue.adds, bm, bn), 4
    )
    tensors = (partial, out, epilogue.bias, epilogue.residual)
    scalars = (
        rows,
        width // step,
        partial.shape[0],
        width // step,
        width,
        epilogue.has,
        epilogue.act,
        epilogue.slope,
    )
    _finish(variant, (-(-rows // bm), -(-width // bn), 1), tensors, scalars, device)


def _by_channels(
    x: torch.Tensor,
    weight: torch.Tensor,
    plan: Sequence[torch.Tensor],
    out: torch.Tensor,
    epilogue: _Epilogue,
) -> None:
    """Depthwise layers: forward and input gradient are the same sum."""
    width, tiles, bm = out.shape[1], plan[3].shape[0], plan[1].shape[1]
    bn = min(64, max(16, 1 << (width - 1).bit_length()))
    dtypes = (x.dtype, weight.dtype, out.dtype, *_dtypes(epilogue, out.dtype), *[_I32] * 4)
    tensors = (x, weight, out, epilogue.bias, epilogue.residual, *plan[:4])
    slots = plan[2].shape[0] // tiles
    rows = (width, width, width)
    ends = (epilogue.has, epilogue.act, epilogue.slope)
    scalars = (slots, width, weight.numel() // width, *rows, *ends)
    grid = (tiles, -(-width // bn), 1)
    _channels(Variant(dtypes, (epilogue.adds, bm, bn), 4), grid, tensors, scalars, x.get_device())


class _Grad(NamedTuple):
    """The two launches of a weight gradient: kernels, grids, scalars; parts and size of a tap."""

    parts: Bound
    parts_grid: tuple[int, int, int]
    parts_scalars: tuple[int, ...]
    finish: Bound
    finish_grid: tuple[int, int, int]
    finish_scalars: tuple[int, ...]
    part_count: int
    size: int


@lru_cache(1024)
def _grad_of(
    dtype: torch.dtype,
    rows: int,
    taps: int,
    c_in: int,
    c_out: int,
    groups: int,
    wide: bool,
    device: int,
    forced: GradTile | None,
) -> _Grad:
    """`rows` is the most pairs that a tap has; channels are one group's."""
    # Both operands are read along the pairs, which tf32 matrix units cannot: always in terms.
    terms = 3 if dtype == _F32 else 1
    operand = torch.float16 if terms == 3 else dtype
    tile = forced or grad_tile(rows, taps, c_in, c_out, groups, terms)
    x_row, g_row, x_low, g_low = c_in * groups, c_out * groups, 0, 0
    if terms == 3:
        x_row, g_row, x_low, g_low = 2 * x_row, 2 * g_row, x_row, g_row
    step = vector(c_in, c_out, x_row, x_low, g_row, g_low)
    even = c_in % tile.bi == 0 and c_out % tile.bo == 0
    constants = (step, even, terms, wide, tile.bo, tile.bi, tile.bp, tile.stages)
    dtypes = (operand, operand, _F32, _I32, _I32, _I64, _I32)
    size = c_out * groups * c_in
    strides = tuple(v // step for v in (c_in, c_out, x_row, x_low, g_row, g_low))
    return _Grad(
        _parts.bound(Variant(dtypes, constants, tile.warps), device),
        (-(-c_out // tile.bo) * -(-c_in // tile.bi), tile.parts * taps, groups),
        (tile.parts, taps, *strides, size),
        _finish_grad.bound(Variant((_F32, dtype), (256,), 4), device),
        (-(-size // 256), taps, 1),
        (tile.parts, taps, c_in, size),
        tile.parts,
        size,
    )


def weight_grad(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    bounds: torch.Tensor,
    groups: int,
    tile: GradTile | None = None,
) -> torch.Tensor:
    """[C_out, K, C_in / groups] from the pairs, in parts whose number the shapes alone decide."""
    taps, c_in, c_out = bounds.shape[0] - 1, features.shape[1] // groups, grad.shape[1] // groups
    out = torch.empty((grad.shape[1], taps, c_in), dtype=features.dtype, device=features.device)
    if src.shape[0] == 0 or out.numel() == 0:
        return out.zero_()
    x, up, largest = aligned(features.contiguous()), aligned(grad.contiguous()), None
    wide = max(x.numel(), up.numel()) * (2 if x.dtype == _F32 else 1) >= _WIDE
    rows = min(features.shape[0], grad.shape[0])
    made = _grad_of(x.dtype, rows, taps, c_in, c_out, groups, wide, x.get_device(), tile)
    if x.dtype == _F32:
        x, up, largest = in_terms(x, up)
    partial = torch.empty((taps, made.part_count, made.size), dtype=_F32, device=x.device)
    tensors = (x, up, partial, src, dst, bounds, largest)
    made.parts(made.parts_grid, tensors, made.parts_scalars)
    made.finish(made.finish_grid, (partial, out), made.finish_scalars)
    return out


def _takes(first: torch.Tensor, second: torch.Tensor, *_: Any) -> bool:
    return first.dtype in _DTYPES and first.dtype == second.dtype


def _pointwise(
    rows: torch.Tensor, matrix: torch.Tensor, epilogue: _Epilogue = _PLAIN
) -> torch.Tensor:
    """One tap that pairs every row with itself is a dense product."""
    bias = None if epilogue.bias is None else epilogue.bias.to(rows.dtype)
    out = torch.nn.functional.linear(rows, matrix, bias)
    if epilogue.residual is not None:
        out += epilogue.residual
    if epilogue.activation == "relu":
        out = out.relu_()
    elif epilogue.activation == "leaky_relu":
        out = torch.nn.functional.leaky_relu_(out, epilogue.alpha)
    elif epilogue.activation == "sigmoid":
        out = out.sigmoid_()
    return out


def _made(
    plan: list[torch.Tensor],
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_out: int,
) -> Sequence[torch.Tensor]:
    """The first five tensors are those of `Plan`."""
    if plan:
        return plan
    return _plan.make(
        aligned(src.contiguous()), aligned(dst.contiguous()), splits, num_out, distinct=False
    )


@conv_forward.kernel("cuda", when=_takes)
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
    if groups == 1 and _plan.is_identity(src, dst, weight.shape[1], features.shape[0], num_out):
        return _pointwise(features, weight[:, 0])
    return run(features, weight, _made(plan, src, dst, splits, num_out), num_out, groups)


@conv_input_grad.kernel("cuda", when=_takes)
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
    if groups == 1 and _plan.is_identity(src, dst, weight.shape[1], grad.shape[0], num_in):
        return _pointwise(grad, weight[:, 0].t())
    made = _made(plan, dst, src, splits, num_in)
    return run(grad, weight, made, num_in, groups, backward=True)


@conv_fused.kernel("cuda", when=_takes)
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
    if scale is not None:
        weight = scaled(weight, scale)
    epilogue = _PLAIN
    if bias is not None or residual is not None or activation != "none":
        epilogue = _Epilogue(bias, residual, activation, alpha)
    taps = splits.shape[0] - 1
    if groups == 1 and _plan.is_identity(src, dst, taps, features.shape[0], num_out):
        return _pointwise(features, flat(weight)[:, 0], epilogue)
    made = _made(plan, src, dst, splits, num_out)
    return run(features, weight, made, num_out, groups, epilogue=epilogue)


@conv_weight_grad.kernel("cuda", when=_takes)
def _weight_grad(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: list[torch.Tensor],
    grad_plan: list[torch.Tensor],
    groups: int,
) -> torch.Tensor:
    if plan:
        bounds = plan[4]
    elif _plan.is_identity(src, dst, splits.shape[0] - 1, features.shape[0], grad.shape[0]):
        # A copy from the host would wait for it, and is no part of a CUDA graph.
        bounds = torch.arange(2, device=src.device) * src.shape[0]
    else:
        bounds = splits.to(src.device, non_blocking=True)
    if len(plan) > len(Plan._fields):
        src, dst = plan[5:]
    return weight_grad(
        features, grad, aligned(src.contiguous()), aligned(dst.contiguous()), bounds, groups
    )
