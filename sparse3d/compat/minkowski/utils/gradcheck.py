"""Gradient check."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["gradcheck"]


def gradcheck(func: Any, inputs: Any, **kwargs: Any) -> bool:
    """`torch.autograd.gradcheck` of a function, or of a Function's `apply`.

    Args:
        func: callable, or an object with `apply`.
        inputs: its arguments; float64 tensors that need a gradient are checked.
        **kwargs: as torch's.
    """
    return bool(torch.autograd.gradcheck(getattr(func, "apply", func), inputs, **kwargs))
