"""Rows times a matrix, for heads and point-wise layers.

    out[n] = weight @ rows[n] + bias

*Shapes.* rows [..., C_in], weight [C_out, C_in] as `torch.nn.Linear` has it, bias [C_out] or None.
*Accumulation.* float32 on Apple GPUs, where PyTorch's product is wrong for an inner dimension of
32,767 and more: the gradient to the weight sums over rows. Elsewhere this is
`torch.nn.functional.linear`. *Gradient.* To all three; twice differentiable. *Determinism.* On
Apple GPUs sums of 512 rows in order, as the convolution's.
"""

from __future__ import annotations

from typing import Any

import torch

from .._registry import Op
from ._conv_reference import _accumulator, _matmul

__all__ = ["linear", "sinusoidal"]


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    wide = _accumulator(left.dtype)
    return _matmul(left.to(wide), right.to(wide)).to(left.dtype).contiguous()


def _rows_reference(rows: torch.Tensor, weight: torch.Tensor, transposed: bool) -> torch.Tensor:
    return _product(rows, weight if transposed else weight.t())


def _weight_reference(rows: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return _product(grad.t(), rows)


linear_rows = Op(
    "linear_rows(Tensor rows, Tensor weight, bool transposed) -> Tensor",
    reference=_rows_reference,
    fake=lambda rows, weight, transposed: rows.new_empty(
        (rows.shape[0], weight.shape[1 if transposed else 0])
    ),
)
"""rows [N, C] times weight [C_out, C_in], or times it transposed, as its gradient."""

linear_weight_grad = Op(
    "linear_weight_grad(Tensor rows, Tensor grad) -> Tensor",
    reference=_weight_reference,
    fake=lambda rows, grad: rows.new_empty((grad.shape[1], rows.shape[1])),
)


def _rows_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.transposed = inputs[2]


def _rows_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    rows, weight = ctx.saved_tensors
    to_rows = linear_rows(grad, weight, not ctx.transposed) if ctx.needs_input_grad[0] else None
    pair = (grad, rows) if ctx.transposed else (rows, grad)
    to_weight = linear_weight_grad(*pair) if ctx.needs_input_grad[1] else None
    return to_rows, to_weight, None


def _weight_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _weight_gradient(ctx: Any, up: torch.Tensor) -> tuple[Any, ...]:
    rows, grad = ctx.saved_tensors
    return (
        linear_rows(grad, up, True) if ctx.needs_input_grad[0] else None,
        linear_rows(rows, up, False) if ctx.needs_input_grad[1] else None,
    )


linear_rows.gradient(_rows_gradient, _rows_setup)
linear_weight_grad.gradient(_weight_gradient, _weight_setup)
linear_rows.autocast("rows", "weight")


def linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`torch.nn.functional.linear`, by a kernel of ours where the device has one.

    Args:
        rows: [..., C_in].
        weight: [C_out, C_in].
        bias: [C_out].
    """
    if not linear_rows.has_kernel(rows.device):
        return torch.nn.functional.linear(rows, weight, bias)
    flat = rows.reshape(-1, rows.shape[-1])
    out: torch.Tensor = linear_rows(flat, weight, False)
    out = out.reshape(*rows.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias.to(out.dtype)


def sinusoidal(
    rows: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor, coef: torch.Tensor
) -> torch.Tensor:
    """sin(rows kernel + bias) coef, the first layer of networks on points.

    Args:
        rows: [N, C_in].
        kernel: [C_in, C_out].
        bias: [1, C_out].
        coef: [1, C_out].
    """
    return torch.sin(linear(rows, kernel.t()) + bias) * coef
