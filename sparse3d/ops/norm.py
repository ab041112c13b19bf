"""Batch normalisation of feature rows in training, with sums that do not depend on the thread
count.

    out = (x - mean) / sqrt(var + eps) * weight + bias;  mean, var over the rows, per channel, var
    divided by N

*Shapes.* features [N, C], weight and bias [C] or None, mean and var [C]. *Dtypes.* float32,
float16, bfloat16, float64; mean and var in float32 (float64 for float64). *Accumulation.* Chunks of
512 rows summed in order; the variance from centred rows. *Empty.* No rows: mean and var are 0. One
row: out is the bias. *Gradient.* To features, weight and bias; twice differentiable. *Determinism.*
Same bytes whatever the thread count, unlike torch's batch norm.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from .. import _check
from .._registry import Op
from .conv import CHUNK, _accumulator

__all__ = ["batch_norm"]


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
    out = centred * torch.rsqrt(var + eps)
    if weight is not None:
        out = out * weight.to(out.dtype)
    if bias is not None:
        out = out + bias.to(out.dtype)
    return out.to(features.dtype), mean, var


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


def _train_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, weight, _, eps = inputs
    _, mean, var = output
    ctx.mark_non_differentiable(mean, var)
    ctx.save_for_backward(features, weight, mean, var)
    ctx.eps = eps


def _train_gradient(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    features, weight, mean, var = ctx.saved_tensors
    grads = batch_norm_grad(grad.contiguous(), features, weight, mean, var, ctx.eps)
    to_features, to_weight, to_bias = grads
    kind = grad.dtype if weight is None else weight.dtype
    return (
        to_features if ctx.needs_input_grad[0] else None,
        to_weight.to(kind) if ctx.needs_input_grad[1] else None,
        to_bias.to(kind) if ctx.needs_input_grad[2] else None,
        None,
    )


def _grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, features, weight, _, _, eps = inputs
    ctx.save_for_backward(grad, features, weight)
    ctx.eps = eps


def _grad_gradient(ctx: Any, *seconds: torch.Tensor) -> tuple[Any, ...]:
    """Second derivatives by differentiating the formulas with mean and variance written out."""
    with torch.enable_grad():
        grad, features = (v.detach().requires_grad_() for v in ctx.saved_tensors[:2])
        weight = ctx.saved_tensors[2]
        weight = None if weight is None else weight.detach().requires_grad_()
        leaves = [grad, features, weight]
        count = max(features.shape[0], 1)
        mean = features.sum(0) / count
        var = ((features - mean) ** 2).sum(0) / count
        outputs = _norm_grad_reference(grad, features, weight, mean, var, ctx.eps)
        wanted = [leaf for leaf in leaves if leaf is not None]
        found = list(
            torch.autograd.grad(outputs, wanted, seconds, create_graph=True, allow_unused=True)
        )
    results = [None if leaf is None else found.pop(0) for leaf in leaves]
    return (*results, None, None, None)


batch_norm_train.gradient(_train_gradient, _train_setup)
batch_norm_grad.gradient(_grad_gradient, _grad_setup)


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
    out, mean, var = cast(
        tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        batch_norm_train(features.contiguous(), weight, bias, eps),
    )
    count = features.shape[0]
    if running_mean is not None and running_var is not None and count > 0:
        with torch.no_grad():
            unbiased = var * (count / max(count - 1, 1))
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return out
