"""Sparse convolution over a kernel map, its two gradients, and the fused form for inference.

    out[q] = sum over pairs (p, q) of tap t of  weight[:, t, :] @ features[p]

The weight is `[C_out, K, C_in / groups]`, a view of the stored `[C_out, *kernel_size, C_in /
groups]`, which the fused form takes as it is; cross-correlation, never flipped. Output channels of
group g read input channels of group g.

*Shapes.* features [N, C_in], out [M, C_out], pairs as `ops.kernel_map` makes them. *Dtypes.*
float32, float16, bfloat16 and float64; features and weight alike. *Accumulation.* float32, float64
for float64; one rounding at the end. *Order of sums.* Free within a backend's fixed plan; the
weight gradient sums a tap's pairs in chunks of 512, added in order. *Gradient.* To features (the
same sum with the roles swapped) and weight, each an operator of its own, so second derivatives
exist. *Determinism.* Same input, device and build give the same bytes, whatever the thread count.
*Autocast.* As dense convolution; float64 stays. *Empty.* No pairs give zeros.

Pairs within a tap ascend by dst; those of a transposed map ascend by src instead. `conv_plan` is
where a backend re-sorts, tiles or orders rows; a kernel must be right without a plan too.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import torch

from .. import _check
from .._registry import Op
from . import _again
from ._conv_reference import (
    Plan,
    _accumulator,
    _forward_reference,
    _fused_reference,
    _input_grad_reference,
    _plan_reference,
    _weight_grad_reference,
    flat,
)

__all__ = ["ACTIVATIONS", "PairSet", "conv", "fused_conv"]

ACTIVATIONS = ("none", "relu", "leaky_relu", "sigmoid")


class PairSet(Protocol):
    """What `conv` reads of a kernel map."""

    src: torch.Tensor
    dst: torch.Tensor
    splits: torch.Tensor

    @property
    def num_in(self) -> int: ...

    @property
    def num_out(self) -> int: ...

    def plan(self) -> Plan:
        """The backend's plan for sums into dst."""
        ...

    def grad_plan(self) -> Plan:
        """The backend's plan for sums into src."""
        ...


def scaled(weight: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """The weight with a scale of output channels folded in, for kernels without one."""
    if scale is None:
        return weight
    factors = scale.to(_accumulator(weight.dtype)).reshape(-1, *[1] * (weight.ndim - 1))
    return (weight.to(factors.dtype) * factors).to(weight.dtype)


_PAIRS = "Tensor src, Tensor dst, Tensor splits, Tensor[] plan, Tensor[] grad_plan"

conv_plan = Op(
    "conv_plan(Tensor src, Tensor dst, Tensor splits, SymInt num_in, SymInt num_out,"
    " bool mirrored, bool distinct=False) -> Tensor[]",
    reference=_plan_reference,
    fake=_plan_reference,
)
conv_forward = Op(
    f"conv_forward(Tensor features, Tensor weight, {_PAIRS}, SymInt num_out, int groups) -> Tensor",
    reference=_forward_reference,
    fake=lambda features, weight, *rest: features.new_empty((rest[-2], weight.shape[0])),
)
conv_input_grad = Op(
    f"conv_input_grad(Tensor grad, Tensor weight, {_PAIRS}, SymInt num_in, int groups) -> Tensor",
    reference=_input_grad_reference,
    fake=lambda grad, weight, *rest: grad.new_empty((rest[-2], weight.shape[2] * rest[-1])),
)
conv_weight_grad = Op(
    f"conv_weight_grad(Tensor features, Tensor grad, {_PAIRS}, int groups) -> Tensor",
    reference=_weight_grad_reference,
    fake=lambda features, grad, src, dst, splits, plan, grad_plan, groups: features.new_empty(
        (grad.shape[1], splits.shape[0] - 1, features.shape[1] // groups)
    ),
)
conv_fused = Op(
    "conv_fused(Tensor features, Tensor weight, Tensor src, Tensor dst, Tensor splits,"
    " Tensor[] plan, SymInt num_out, int groups, Tensor? bias, Tensor? residual, str activation,"
    " float alpha, Tensor? scale=None) -> Tensor",
    reference=_fused_reference,
    fake=lambda features, weight, src, dst, splits, plan, num_out, *_: features.new_empty(
        (num_out, weight.shape[0])
    ),
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    left, right, src, dst, splits, plan, grad_plan = inputs[:7]
    ctx.save_for_backward(left, right, src, dst, splits, *plan, *grad_plan)
    ctx.plan_length = len(plan)
    ctx.groups = inputs[-1]


def _saved(ctx: Any) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], Plan, Plan]:
    left, right, src, dst, splits, *plans = ctx.saved_tensors
    return left, right, [src, dst, splits], plans[: ctx.plan_length], plans[ctx.plan_length :]


def _forward_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features = inputs[0]
    made = _again.sources(features)
    ctx.make, ctx.num_in = None if made is None else made.make, features.shape[0]
    ctx.num_sources = 1 if made is None else len(made.tensors)
    left, right, src, dst, splits, plan, grad_plan = inputs[:7]
    lefts = (left,) if made is None else made.tensors
    ctx.save_for_backward(*lefts, right, src, dst, splits, *plan, *grad_plan)
    ctx.plan_length = len(plan)
    ctx.groups = inputs[-1]


def _forward_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    saved, count = ctx.saved_tensors, ctx.num_sources
    weight, src, dst, splits, *plans = saved[count:]
    pairs, plan, grad_plan = (src, dst, splits), plans[: ctx.plan_length], plans[ctx.plan_length :]
    to_features = to_weight = None
    grad = grad.contiguous()
    if ctx.needs_input_grad[0]:
        to_features = conv_input_grad(grad, weight, *pairs, grad_plan, plan, ctx.num_in, ctx.groups)
    if ctx.needs_input_grad[1]:
        features = saved[0] if ctx.make is None else ctx.make(saved[:count])
        to_weight = conv_weight_grad(features, grad, *pairs, plan, grad_plan, ctx.groups)
    return to_features, to_weight, None, None, None, None, None, None, None


def _input_grad_gradient(ctx: Any, second: torch.Tensor) -> tuple[Any, ...]:
    grad, weight, pairs, plan, grad_plan = _saved(ctx)
    to_grad = to_weight = None
    second = second.contiguous()
    if ctx.needs_input_grad[0]:
        to_grad = conv_forward(second, weight, *pairs, grad_plan, plan, grad.shape[0], ctx.groups)
    if ctx.needs_input_grad[1]:
        to_weight = conv_weight_grad(second, grad, *pairs, grad_plan, plan, ctx.groups)
    return to_grad, to_weight, None, None, None, None, None, None, None


def _weight_grad_gradient(ctx: Any, second: torch.Tensor) -> tuple[Any, ...]:
    features, grad, pairs, plan, grad_plan = _saved(ctx)
    to_features = to_grad = None
    second = second.contiguous()
    if ctx.needs_input_grad[0]:
        to_features = conv_input_grad(
            grad, second, *pairs, grad_plan, plan, features.shape[0], ctx.groups
        )
    if ctx.needs_input_grad[1]:
        to_grad = conv_forward(features, second, *pairs, plan, grad_plan, grad.shape[0], ctx.groups)
    return to_features, to_grad, None, None, None, None, None, None


conv_forward.gradient(_forward_gradient, _forward_setup)
conv_input_grad.gradient(_input_grad_gradient, _setup)
conv_weight_grad.gradient(_weight_grad_gradient, _setup)
conv_forward.autocast("features", "weight")
conv_fused.autocast("features", "weight", "residual")


def _check_conv(features: torch.Tensor, weight: torch.Tensor, pairs: PairSet, groups: int) -> None:
    """Check the arguments of a convolution."""
    # What layers hand over is seen at a glance; the checks say what is wrong with anything else.
    plain = isinstance(features, torch.Tensor) and features.layout == torch.strided
    if not plain or features.ndim != 2 or features.dtype not in _check.FLOATS:
        _check.features("features", features)
    if not isinstance(weight, torch.Tensor) or weight.layout != torch.strided:
        _check.tensor("weight", weight)
    if not features.device == weight.device == pairs.src.device:
        _check.same_device(features=features, weight=weight, src=pairs.src)
    if type(groups) is not int or groups < 1:
        _check.positive("groups", groups)
    shape, (rows, channels) = weight.shape, features.shape
    if len(shape) < 3:
        _check.fail("weight", "of shape [C_out, *kernel_size, C_in / groups]", list(shape))
    volume, count = math.prod(shape[1:-1]), pairs.splits.shape[0] - 1
    if volume != count:
        _check.fail("weight", f"of {count} taps as the kernel map has", f"{volume} taps")
    if shape[0] % groups or shape[-1] * groups != channels:
        _check.fail(
            "features and weight",
            f"of matching channels for groups={groups}",
            f"features {list(features.shape)}, weight {list(weight.shape)}",
        )
    if rows != pairs.num_in:
        _check.same_rows("features", rows, "the kernel map's input side", pairs.num_in)


def _same_dtype(features: torch.Tensor, weight: torch.Tensor) -> None:
    if features.dtype != weight.dtype and not torch.is_autocast_enabled(features.device.type):
        _check.fail_type(
            "features and weight",
            "of one dtype",
            f"{features.dtype} and {weight.dtype}",
            "convert one of them or use torch.autocast",
        )


def conv(
    features: torch.Tensor,
    weight: torch.Tensor,
    pairs: PairSet,
    bias: torch.Tensor | None = None,
    groups: int = 1,
) -> torch.Tensor:
    """Convolve feature rows over a kernel map.

    Args:
        features: [N, C_in], float32, float16, bfloat16 or float64.
        weight: [C_out, *kernel_size, C_in / groups], same dtype.
        pairs: a `KernelMap`, or anything with its pairs and row counts.
        bias: [C_out] or None.
        groups: number of channel groups; C_in groups make a depthwise layer.

    Returns:
        [M, C_out] in the dtype of `features` (under autocast, in autocast's).

    Raises:
        ValueError: if channels, taps, rows or devices do not fit together.
        TypeError: if dtypes differ outside autocast or are not floating.
    """
    _check_conv(features, weight, pairs, groups)
    _same_dtype(features, weight)
    needs_grad = torch.is_grad_enabled() and (features.requires_grad or weight.requires_grad)
    out = cast(
        torch.Tensor,
        conv_forward(
            features.contiguous(),
            flat(weight).contiguous(),
            pairs.src,
            pairs.dst,
            pairs.splits,
            pairs.plan(),
            pairs.grad_plan() if needs_grad else [],
            pairs.num_out,
            groups,
        ),
    )
    return out if bias is None else out + bias.to(out.dtype)


def fused_conv(
    features: torch.Tensor,
    weight: torch.Tensor,
    pairs: PairSet,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str = "none",
    alpha: float = 0.01,
    groups: int = 1,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """`act(conv * scale + bias + residual)` in one pass, for inference.

    Args:
        features: [N, C_in].
        weight: [C_out, *kernel_size, C_in / groups].
        pairs: a `KernelMap`.
        bias: [C_out] or None.
        residual: [M, C_out] or None.
        activation: one of "none", "relu", "leaky_relu", "sigmoid".
        alpha: slope of leaky_relu below zero.
        groups: number of channel groups.
        scale: [C_out] or None: a batch norm's, whose shift is in `bias`.

    Returns:
        [M, C_out].

    Raises:
        ValueError: if shapes, devices or the activation do not fit, or a gradient is asked for.
        TypeError: if dtypes differ outside autocast or are not floating.
    """
    _check_conv(features, weight, pairs, groups)
    _same_dtype(features, weight)
    if activation not in ACTIVATIONS:
        _check.fail("activation", f"one of {ACTIVATIONS}", repr(activation))
    if residual is not None and tuple(residual.shape) != (pairs.num_out, weight.shape[0]):
        _check.fail(
            "residual", f"of shape {[pairs.num_out, weight.shape[0]]}", list(residual.shape)
        )
    tensors = (features, weight, bias, residual, scale)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        _check.fail(
            "fused_conv", "called under torch.no_grad()", "a gradient", "use conv for training"
        )
    # A view would cost a small layer a tenth of its time; graphs and exports see three axes.
    kernel = flat(weight) if torch.compiler.is_compiling() else weight
    out: torch.Tensor = conv_fused(
        features.contiguous(),
        kernel.contiguous(),
        pairs.src,
        pairs.dst,
        pairs.splits,
        pairs.plan(),
        pairs.num_out,
        groups,
        bias,
        residual,
        activation,
        alpha,
        scale,
    )
    return out
