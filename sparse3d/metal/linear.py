"""Rows times a matrix on Metal: a convolution of one tap, whose rows are the inputs as they
stand."""

from typing import Any

import torch

from ..ops.linear import linear_rows, linear_weight_grad
from . import _shader, conv


def _takes(first: torch.Tensor, second: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(first, second) and first.dtype == second.dtype


@linear_rows.kernel("metal", when=_takes)
def _rows(rows: torch.Tensor, weight: torch.Tensor, transposed: bool) -> torch.Tensor:
    return conv.one_tap(rows, weight[:, None], backward=transposed)


@linear_weight_grad.kernel("metal", when=_takes)
def _weight_grad(rows: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    every = torch.arange(rows.shape[0], dtype=torch.int32, device=rows.device)
    splits = torch.tensor([0, rows.shape[0]])
    made: torch.Tensor = conv.weight_grad(rows, grad, every, every, splits, [], [], 1)
    return made[:, 0]
