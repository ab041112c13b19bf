"""The plain torch definition of convolution, its gradients and the fused form: `ops.conv` says what
they compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

CHUNK = 512
TILE = 16
INNER = 256

Plan = list[torch.Tensor]


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def flat(weight: torch.Tensor) -> torch.Tensor:
    """[C_out, *kernel_size, C_in / groups] as [C_out, K, C_in / groups]."""
    if weight.ndim == 3:
        return weight
    shape = weight.shape[0], math.prod(weight.shape[1:-1]), weight.shape[-1]
    return weight.view(shape) if weight.is_contiguous() else weight.reshape(shape)


def _taps(
    src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Non-empty taps in mirrored pairs, outermost first: (tap, src rows, dst rows)."""
    bounds = splits.tolist()
    count = len(bounds) - 1
    for half in range((count + 1) // 2):
        for tap in dict.fromkeys((half, count - 1 - half)):
            begin, end = bounds[tap], bounds[tap + 1]
            if end > begin:
                yield tap, src[begin:end].long(), dst[begin:end].long()


def _is_identity(rows: torch.Tensor, total: int) -> bool:
    return len(rows) == total and bool(
        (rows == torch.arange(total, dtype=rows.dtype, device=rows.device)).all()
    )


def _rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return values if _is_identity(rows, len(values)) else values.index_select(0, rows)


def _add_rows(out: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    if _is_identity(rows, len(out)):
        out.add_(values)
    else:
        out.index_add_(0, rows, values)


def _matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right` in whole tiles of 16 rows and columns, zeros filling the last, the inner
    dimension in pieces of 256.

    A BLAS splits a product among its threads: ragged edges are summed in another order than full
    tiles, and long sums over few outputs are cut, sooner where the right side is transposed. Such
    products change bytes with the thread count.
    """
    rows, columns = left.shape[-2], right.shape[-1]
    right = torch.nn.functional.pad(right, (0, -columns % TILE)).contiguous()
    full = rows - rows % TILE
    edge = torch.nn.functional.pad(left[..., full:, :], (0, 0, 0, -rows % TILE))
    out = left.new_empty((*left.shape[:-1], right.shape[-1]))
    for first in range(0, max(left.shape[-1], 1), INNER):
        inner = slice(first, first + INNER)
        for part, head in ((left[..., :full, :], 0), (edge, full)):
            product = part[..., inner] @ right[..., inner, :]
            target = out[..., head : head + product.shape[-2], :]
            product = product[..., : target.shape[-2], :]
            target.add_(product) if first else target.copy_(product)
    return out[..., :columns]


def _multiply(rows: torch.Tensor, weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Rows [P, C_in] with one tap's weight [C_out, C_in / groups] -> [P, C_out]."""
    if groups == 1:
        return _matmul(rows, weight.t())
    if weight.shape == (groups, 1):
        return rows * weight[:, 0]
    split = rows.reshape(len(rows), groups, -1).transpose(0, 1)
    tap = weight.reshape(groups, -1, weight.shape[1]).transpose(1, 2)
    return _matmul(split, tap).transpose(0, 1).reshape(len(rows), -1)


def _transpose_groups(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """One tap's weight [C_out, C_in / groups] as that of the transposed layer, [C_in, C_out /
    groups]."""
    split = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1])
    return split.transpose(1, 2).reshape(groups * weight.shape[1], split.shape[1])


def _forward_reference(
    features: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    grad_plan: Plan,
    num_out: int,
    groups: int,
) -> torch.Tensor:
    """Weight-stationary: for each tap one gather, one matmul, one scatter; the centre tap needs no
    gather."""
    dtype = _accumulator(features.dtype)
    rows, kernel = features.to(dtype), weight.to(dtype)
    out = rows.new_zeros((num_out, weight.shape[0]))
    for tap, sources, targets in _taps(src, dst, splits):
        _add_rows(out, targets, _multiply(_rows(rows, sources), kernel[:, tap], groups))
    return out.to(features.dtype)


def _input_grad_reference(
    grad: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    grad_plan: Plan,
    num_in: int,
    groups: int,
) -> torch.Tensor:
    """The forward sum with the roles and the channels swapped."""
    dtype = _accumulator(grad.dtype)
    rows, kernel = grad.to(dtype), weight.to(dtype)
    out = rows.new_zeros((num_in, weight.shape[2] * groups))
    for tap, sources, targets in _taps(src, dst, splits):
        swapped = _transpose_groups(kernel[:, tap], groups)
        _add_rows(out, sources, _multiply(_rows(rows, targets), swapped, groups))
    return out.to(grad.dtype)


def _weight_grad_reference(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    grad_plan: Plan,
    groups: int,
) -> torch.Tensor:
    """Chunks of 512 pairs of a tap, added in order."""
    dtype = _accumulator(features.dtype)
    rows, upstream = features.to(dtype), grad.to(dtype)
    inner, outer = features.shape[1] // groups, grad.shape[1] // groups
    out = rows.new_zeros((splits.numel() - 1, groups, outer, inner))
    for tap, sources, targets in _taps(src, dst, splits):
        for row, column in zip(
            torch.split(sources, CHUNK), torch.split(targets, CHUNK), strict=True
        ):
            left = upstream.index_select(0, column).reshape(len(row), groups, outer)
            right = rows.index_select(0, row).reshape(len(row), groups, inner)
            out[tap] += _matmul(left.permute(1, 2, 0), right.transpose(0, 1))
    summed = out.permute(1, 2, 0, 3).reshape(grad.shape[1], len(out), inner)
    return summed.to(features.dtype).contiguous()


def _plan_reference(
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
    num_out: int,
    mirrored: bool,
    distinct: bool = False,
) -> Plan:
    """The reference needs no plan. `distinct`: no two pairs of a tap share a row, on either
    side. A backend may take a neighbour table [M, K] for `src`, -1 where there is no pair; it then
    reads no `dst` and of `splits` the length only."""
    return []


def _activate(values: torch.Tensor, activation: str, alpha: float) -> torch.Tensor:
    if activation == "relu":
        return torch.relu(values)
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(values, alpha)
    if activation == "sigmoid":
        return torch.sigmoid(values)
    return values


def _fused_reference(
    features: torch.Tensor,
    weight: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    num_out: int,
    groups: int,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
    alpha: float,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """act(conv * scale + bias + residual), rounded once."""
    dtype = _accumulator(features.dtype)
    out = _forward_reference(
        features.to(dtype), flat(weight).to(dtype), src, dst, splits, plan, [], num_out, groups
    )
    if scale is not None:
        out *= scale.to(dtype)
    if bias is not None:
        out += bias.to(dtype)
    if residual is not None:
        out += residual.to(dtype)
    return _activate(out, activation, alpha).to(features.dtype)
