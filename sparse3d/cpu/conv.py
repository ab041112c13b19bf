"""Convolution, its gradients and the fused form.

A plan is `[header]`, or `[header, src, dst]` where the pairs had to be sorted by the rows they
accumulate into; `header` is int64 [2], see csrc/pairs.h.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from ..ops._conv_reference import Plan, _accumulator, flat
from ..ops.conv import (
    conv_forward,
    conv_fused,
    conv_input_grad,
    conv_plan,
    conv_weight_grad,
)
from ._library import (
    ACTIVATIONS,
    DTYPES,
    ConvCall,
    WeightGradCall,
    address,
    call,
    path,
    threads,
)
from ._memory import empty

_SORTED, _MIRROR = 1, 2


@conv_plan.kernel("cpu")
def _plan(
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
    num_out: int,
    mirrored: bool,
    distinct: bool = False,
) -> Plan:
    src, dst, splits = src.contiguous(), dst.contiguous(), splits.contiguous()
    header = torch.empty(2, dtype=torch.int64)
    taps = splits.shape[0] - 1
    pairs = (threads(), address(src), address(dst), address(splits), taps)
    call("s3d_pairs_inspect", *pairs, num_in, num_out, int(mirrored), address(header))
    in_order = bool(int(header[0]) & (_SORTED | _MIRROR))
    if in_order and mirrored:
        return [header]
    # A copy even of ordered pairs: compiled networks specialise on tensors that come and go with
    # the scene, or are empty in some.
    by_dst = src.clone(), dst.clone()
    if in_order:
        return [header, *by_dst]
    call("s3d_pairs_sort", *pairs, num_out, *map(address, by_dst))
    header[0] |= _SORTED
    return [header, *by_dst]


class Ordered(NamedTuple):
    """Pairs in the order of the rows that they accumulate into."""

    rows_in: torch.Tensor
    rows_out: torch.Tensor
    splits: torch.Tensor
    flags: int
    identity: int


def ordered(
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    num_in: int,
    num_out: int,
) -> Ordered:
    """The pairs as a plan has them; without one, the plan is made here."""
    src, dst, splits = src.contiguous(), dst.contiguous(), splits.contiguous()
    plan = plan or _plan(src, dst, splits, num_in, num_out, False)
    flags, identity = plan[0].tolist()
    if len(plan) == 3:
        src, dst = plan[1:]
    elif flags & _MIRROR:
        src, dst = dst, src
    return Ordered(src, dst, splits, flags, identity)


def _convolve(
    features: torch.Tensor,
    weight: torch.Tensor,
    pairs: Ordered,
    num_out: int,
    groups: int,
    transposed: bool,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str = "none",
    alpha: float = 0.0,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum `features[rows_in] @ w[tap]` into rows_out; transposed swaps the weight's channels."""
    channels_out, taps, channels_in = weight.shape
    per_group = channels_out // groups
    to_out, to_tap, to_in = weight.stride()
    w_group = per_group * to_out
    if transposed:
        channels_in, per_group, to_in, to_out = per_group, channels_in, to_out, to_in
    features = features.contiguous()
    out = empty((num_out, per_group * groups), features.dtype)
    bias, scale = (
        None if v is None else v.to(_accumulator(features.dtype)).contiguous()
        for v in (bias, scale)
    )
    if residual is not None:
        residual = residual.to(features.dtype).contiguous()
    request = ConvCall(
        threads=threads(),
        path=path(),
        dtype=DTYPES[features.dtype],
        activation=ACTIVATIONS[activation],
        x=address(features),
        w=address(weight),
        scale=address(scale),
        bias=address(bias),
        residual=address(residual),
        y=address(out),
        in_rows=address(pairs.rows_in),
        out_rows=address(pairs.rows_out),
        splits=address(pairs.splits),
        ldx=features.shape[1],
        ldy=out.shape[1],
        ldr=out.shape[1],
        w_group=w_group,
        w_tap=to_tap,
        w_in=to_in,
        w_out=to_out,
        channels_in=channels_in,
        channels_out=per_group,
        groups=groups,
        taps=taps,
        num_out=num_out,
        flags=pairs.flags,
        identity=pairs.identity,
        alpha=alpha,
    )
    call("s3d_conv", ctypes.byref(request))
    return out


@conv_forward.kernel("cpu")
def _forward(
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
    pairs = ordered(src, dst, splits, plan, features.shape[0], num_out)
    return _convolve(features, weight, pairs, num_out, groups, False)


@conv_input_grad.kernel("cpu")
def _input_grad(
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
    pairs = ordered(dst, src, splits, plan, grad.shape[0], num_in)
    return _convolve(grad, weight, pairs, num_in, groups, True)


@conv_fused.kernel("cpu")
def _fused(
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
    pairs = ordered(src, dst, splits, plan, features.shape[0], num_out)
    epilogue = (bias, residual, activation, alpha, scale)
    return _convolve(features, flat(weight), pairs, num_out, groups, False, *epilogue)


@conv_weight_grad.kernel("cpu")
def _weight_grad(
    features: torch.Tensor,
    grad: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    plan: Plan,
    grad_plan: Plan,
    groups: int,
) -> torch.Tensor:
    features, grad = features.contiguous(), grad.contiguous()
    src, dst, splits = src.contiguous(), dst.contiguous(), splits.contiguous()
    ascending, rows = None, 0
    if len(plan) == 3:
        src, ascending = plan[1:]
        dst, rows = ascending, grad.shape[0]
    elif plan:
        mirrored = bool(int(plan[0][0]) & _MIRROR)
        ascending, rows = (src, features.shape[0]) if mirrored else (dst, grad.shape[0])
    taps = splits.shape[0] - 1
    channels_in, channels_out = features.shape[1] // groups, grad.shape[1] // groups
    out = torch.empty((grad.shape[1], taps, channels_in), dtype=features.dtype)
    request = WeightGradCall(
        threads=threads(),
        path=path(),
        dtype=DTYPES[features.dtype],
        x=address(features),
        g=address(grad),
        dw=address(out),
        in_rows=address(src),
        out_rows=address(dst),
        splits=address(splits),
        sorted=address(ascending),
        sorted_rows=rows,
        ldx=features.shape[1],
        ldg=grad.shape[1],
        channels_in=channels_in,
        channels_out=channels_out,
        groups=groups,
        taps=taps,
    )
    call("s3d_conv_weight_grad", ctypes.byref(request))
    return out
