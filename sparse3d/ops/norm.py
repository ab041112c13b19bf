"""Batch normalisation of feature rows in training, with sums that do not depend on the thread
count.

    out = (x - mean) / sqrt(var + eps) * weight + bias;  mean, var over the rows, per channel, var
    divided by N

`batch_norm_relu_train` adds a residual to that and applies ReLU, to the same values as the three
steps one by one: half types round after each. Its gradient makes the mask again from the features,
or takes it from the output where a residual was added. `batch_norm_relu_again` gives its rows once
more from mean and var, the same bytes: a convolution that read them need not keep them.

*Shapes.* features, residual, out [N, C], weight and bias [C] or None, mean and var [C].
*Dtypes.* float32, float16, bfloat16, float64; mean and var in float32 (float64 for float64).
*Accumulation.* Chunks of 512 rows summed in order; the variance from centred rows. *Empty.* No
rows: mean and var are 0. One row: out is the bias. *Gradient.* To features, weight, bias and
residual; twice differentiable. *Determinism.* Same bytes whatever the thread count, unlike torch's
batch norm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from .. import _check
from .._registry import Op
from . import _again
from ._conv_reference import CHUNK, _accumulator

__all__ = ["batch_norm", "batch_norm_relu"]

Statistics = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _column_sum(rows: torch.Tensor) -> torch.Tensor:
    """Sum over rows: chunks of 512, added in order."""
    total = rows.new_zeros(rows.shape[1])
    for chunk in torch.split(rows, CHUNK):
        total += chunk.sum(0)
    return total


def _norm_reference(
    features: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two passes: mean, then the variance of the centred rows."""
    rows = features.to(_accumulator(features.dtype))
    count = max(len(rows), 1)
    mean = _column_sum(rows) / count
    centred = rows - mean
    var = _column_sum(centred * centred) / count
    return _normalized(features, weight, bias, mean, var, eps), mean, var


def _normalized(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    out = (features.to(mean.dtype) - mean) * torch.rsqrt(var + eps)
    if weight is not None:
        out = out * weight.to(out.dtype)
    if bias is not None:
        out = out + bias.to(out.dtype)
    return out.to(features.dtype)


def _norm_grad_reference(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients to features, weight and bias."""
    rows, upstream = features.to(mean.dtype), grad.to(mean.dtype)
    scale = torch.rsqrt(var + eps)
    unit = (rows - mean) * scale
    to_bias = _column_sum(upstream)
    to_weight = _column_sum(upstream * unit)
    count = max(len(rows), 1)
    inner = upstream - to_bias / count - unit * (to_weight / count)
    factor = scale if weight is None else scale * weight.to(scale.dtype)
    return (inner * factor).to(features.dtype), to_weight, to_bias


def _norm_relu_reference(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norm, sum, ReLU."""
    out, mean, var = _norm_reference(features, weight, bias, eps)
    return torch.relu(out if residual is None else out + residual), mean, var


def _norm_relu_again_reference(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """The rows of a norm and ReLU whose statistics are known."""
    return torch.relu(_normalized(features, weight, bias, mean, var, eps))


def _norm_relu_grad_reference(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients to features, weight, bias and, where `out` is given, the residual (else [0, C])."""
    if out is None:
        rows = _normalized(features, weight, bias, mean, var, eps)
        masked = grad.masked_fill(rows.detach() <= 0, 0)
    else:
        masked = grad.masked_fill(out.detach() <= 0, 0)
    grads = _norm_grad_reference(masked, features, weight, mean, var, eps)
    return (*grads, features.new_empty((0, features.shape[1])) if out is None else masked.clone())


def _statistics_like(features: torch.Tensor) -> torch.Tensor:
    return features.new_empty((features.shape[1],), dtype=_accumulator(features.dtype))


batch_norm_train = Op(
    "batch_norm_train(Tensor features, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    reference=_norm_reference,
    fake=lambda features, weight, bias, eps: (
        torch.empty_like(features),
        _statistics_like(features),
        _statistics_like(features),
    ),
)
batch_norm_grad = Op(
    "batch_norm_grad(Tensor grad, Tensor features, Tensor? weight, Tensor mean, Tensor var,"
    " float eps) -> (Tensor, Tensor, Tensor)",
    reference=_norm_grad_reference,
    fake=lambda grad, features, weight, mean, var, eps: (
        torch.empty_like(features),
        torch.empty_like(mean),
        torch.empty_like(mean),
    ),
)
batch_norm_relu_train = Op(
    "batch_norm_relu_train(Tensor features, Tensor? weight, Tensor? bias, Tensor? residual,"
    " float eps) -> (Tensor, Tensor, Tensor)",
    reference=_norm_relu_reference,
    fake=lambda features, weight, bias, residual, eps: (
        torch.empty_like(features),
        _statistics_like(features),
        _statistics_like(features),
    ),
)
batch_norm_relu_again = Op(
    "batch_norm_relu_again(Tensor features, Tensor? weight, Tensor? bias, Tensor mean, Tensor var,"
    " float eps) -> Tensor",
    reference=_norm_relu_again_reference,
    fake=lambda features, weight, bias, mean, var, eps: torch.empty_like(features),
)
batch_norm_relu_grad = Op(
    "batch_norm_relu_grad(Tensor grad, Tensor features, Tensor? weight, Tensor? bias, Tensor? out,"
    " Tensor mean, Tensor var, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_norm_relu_grad_reference,
    fake=lambda grad, features, weight, bias, out, mean, var, eps: (
        torch.empty_like(features),
        torch.empty_like(mean),
        torch.empty_like(mean),
        features.new_empty((0, features.shape[1])) if out is None else torch.empty_like(out),
    ),
)


def _train_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, weight, _, eps = inputs
    _, mean, var = output
    ctx.mark_non_differentiable(mean, var)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(features, weight, mean, var)
    ctx.eps = eps


def _train_gradient(ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 4
    features, weight, mean, var = ctx.saved_tensors
    grads = batch_norm_grad(grad.contiguous(), features, weight, mean, var, ctx.eps)
    return (*_wanted(ctx, grads, grad.dtype if weight is None else weight.dtype), None)


def _wanted(ctx: Any, grads: tuple[torch.Tensor, ...], kind: torch.dtype) -> tuple[Any, ...]:
    """Gradients to features, weight and bias, where asked for."""
    kinds = (grads[0].dtype, kind, kind)
    return tuple(
        grad.to(dtype) if needed else None
        for grad, dtype, needed in zip(grads[:3], kinds, ctx.needs_input_grad[:3], strict=True)
    )


def _relu_train_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, weight, bias, residual, eps = inputs
    out, mean, var = output
    ctx.mark_non_differentiable(mean, var)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(features, weight, bias, None if residual is None else out, mean, var)
    ctx.eps = eps


def _relu_train_gradient(ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 5
    features, weight, bias, out, mean, var = ctx.saved_tensors
    grads = batch_norm_relu_grad(grad.contiguous(), features, weight, bias, out, mean, var, ctx.eps)
    wanted = _wanted(ctx, grads, grad.dtype if weight is None else weight.dtype)
    return (*wanted, grads[3] if ctx.needs_input_grad[3] else None, None)


def _grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, features, weight, _, _, eps = inputs
    ctx.save_for_backward(grad, features, weight)
    ctx.eps = eps


def _relu_grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, features, weight, bias, out, _, _, eps = inputs
    ctx.save_for_backward(grad, features, weight, bias, out)
    ctx.eps = eps


def _grad_gradient(ctx: Any, *seconds: torch.Tensor) -> tuple[Any, ...]:
    to_leaves = _second_derivatives(ctx.saved_tensors, _norm_grad_reference, seconds, ctx.eps)
    return (*to_leaves, None, None, None)


def _relu_grad_gradient(ctx: Any, *seconds: torch.Tensor) -> tuple[Any, ...]:
    grad, features, weight, bias, out = ctx.saved_tensors

    def formula(grad: Any, features: Any, weight: Any, mean: Any, var: Any, eps: float) -> Any:
        return _norm_relu_grad_reference(grad, features, weight, bias, out, mean, var, eps)

    to_leaves = _second_derivatives((grad, features, weight), formula, seconds, ctx.eps)
    return (*to_leaves, None, None, None, None, None)


def _second_derivatives(
    saved: tuple[Any, ...],
    formula: Callable[..., Any],
    seconds: tuple[torch.Tensor, ...],
    eps: float,
) -> list[torch.Tensor | None]:
    """To grad, features and weight, by differentiating the formulas with mean and variance written
    out."""
    with torch.enable_grad():
        leaves = [None if v is None else v.detach().requires_grad_() for v in saved]
        grad, features, weight = leaves
        assert features is not None
        count = max(features.shape[0], 1)
        mean = features.sum(0) / count
        var = ((features - mean) ** 2).sum(0) / count
        outputs = formula(grad, features, weight, mean, var, eps)
        given = [
            (out, second) for out, second in zip(outputs, seconds, strict=True) if out.requires_grad
        ]
        found = list(
            torch.autograd.grad(
                [out for out, _ in given],
                [leaf for leaf in leaves if leaf is not None],
                [second for _, second in given],
                create_graph=True,
                allow_unused=True,
            )
        )
    return [None if leaf is None else found.pop(0) for leaf in leaves]


batch_norm_train.gradient(_train_gradient, _train_setup)
batch_norm_grad.gradient(_grad_gradient, _grad_setup)
batch_norm_relu_train.gradient(_relu_train_gradient, _relu_train_setup)
batch_norm_relu_grad.gradient(_relu_grad_gradient, _relu_grad_setup)


def batch_norm(
    features: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalise feature rows per channel; arguments as `torch.nn.functional.batch_norm`.

    Args:
        features: [N, C]; N may be 0 or 1 in training too.
        running_mean: [C], updated in training (not by a batch without rows).
        running_var: [C], updated with the unbiased variance.
        weight: [C] or None.
        bias: [C] or None.
        training: use the statistics of these rows.
        momentum: share of the new statistics.
        eps: added to the variance.

    Returns:
        [N, C] in the dtype of `features`.

    Raises:
        ValueError: if `features` is not [N, C].
        TypeError: if it is not floating.
    """
    _check.features("features", features)
    if not training:
        return torch.nn.functional.batch_norm(
            features, running_mean, running_var, weight, bias, False, momentum, eps
        )
    made = cast(Statistics, batch_norm_train(features.contiguous(), weight, bias, eps))
    return _tracked(made, running_mean, running_var, momentum)


def batch_norm_relu(
    features: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """`relu(batch_norm(features) + residual)` in training, the same values in fewer passes.

    Args:
        features: [N, C]; N may be 0 or 1.
        running_mean: [C], updated (not by a batch without rows).
        running_var: [C], updated with the unbiased variance.
        weight: [C] or None.
        bias: [C] or None.
        momentum: share of the new statistics.
        eps: added to the variance.
        residual: [N, C] in the dtype of `features`, or None.

    Returns:
        [N, C] in the dtype of `features`.

    Raises:
        ValueError: if `features` is not [N, C], or the residual of another shape.
        TypeError: if it is not floating, or the residual of another dtype.
    """
    _check.features("features", features)
    if residual is not None:
        _check.tensor("residual", residual)
        if residual.shape != features.shape:
            _check.fail("residual", f"of shape {list(features.shape)}", list(residual.shape))
        if residual.dtype != features.dtype:
            _check.fail_type("residual", f"of dtype {features.dtype}", residual.dtype)
        residual = residual.contiguous()
    features = features.contiguous()
    made = cast(Statistics, batch_norm_relu_train(features, weight, bias, residual, eps))
    if residual is None:
        _again.remember(made[0], (features, weight, bias, *made[1:]), partial(_make_again, eps))
    return _tracked(made, running_mean, running_var, momentum)


def _make_again(eps: float, saved: _again.Saved) -> torch.Tensor:
    """The rows of `batch_norm_relu` without a residual, differentiable where grad mode is on."""
    features, weight, bias, mean, var = saved
    if torch.is_grad_enabled():
        return cast(Statistics, batch_norm_relu_train(features, weight, bias, None, eps))[0]
    return cast(torch.Tensor, batch_norm_relu_again(features, weight, bias, mean, var, eps))


def _tracked(
    made: Statistics,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
) -> torch.Tensor:
    """The rows of (rows, mean, var), after the running statistics took their share."""
    out, mean, var = made
    count = out.shape[0]
    if running_mean is not None and running_var is not None and count > 0:
        with torch.no_grad():
            unbiased = var * (count / max(count - 1, 1))
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return out
