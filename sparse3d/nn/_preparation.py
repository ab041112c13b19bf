"""`prepare`: build every kernel map of a model before its feature path is compiled or captured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from ..tensor import SparseConvTensor

__all__ = ["is_preparing", "prepare"]

T = TypeVar("T", bound=SparseConvTensor)


class _State(threading.local):
    def __init__(self) -> None:
        self.depth = 0


_state = _State()


def is_preparing() -> bool:
    """Whether layers should build maps and plans and leave the arithmetic out."""
    return not torch.compiler.is_compiling() and _state.depth > 0


def prepare(model: nn.Module, x: T, *args: Any, **kwargs: Any) -> T:
    """Build every map and plan that `model` needs for `x`, eagerly.

    The maps stay on `x`'s sites. `model(x)` then builds none: it compiles with
    `torch.compile(model, fullgraph=True, dynamic=True)` into one graph for all scenes, exports, and
    can be captured in a CUDA graph.

    Args:
        model: any module whose sparse layers do not choose sites by feature values.
        x: the input; its features are not read.
        *args: further arguments of `model`.
        **kwargs: further arguments of `model`.

    Returns:
        `x`, for chaining.
    """
    _state.depth += 1
    try:
        with torch.no_grad(), inferring(model):
            model(x, *args, **kwargs)
    finally:
        _state.depth -= 1
    return x


@contextmanager
def inferring(model: nn.Module) -> Iterator[None]:
    """Every module of `model` in eval, and afterwards as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
