"""Functions on features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["fapply"]


def fapply(input: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The tensor with `fn(feats, ...)` for features."""
    return input.like(fn(input.feats, *args, **kwargs))
