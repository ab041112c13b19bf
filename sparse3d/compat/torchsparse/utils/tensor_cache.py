"""What tensors of one network share: coordinates and kernel maps by stride."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .... import _check

__all__ = [
    "TensorCache",
    "TensorCacheMode",
    "clear_global_tensor_cache",
    "get_global_tensor_cache",
    "get_tensor_cache_mode",
    "set_global_tensor_cache",
    "set_tensor_cache_mode",
]


class TensorCacheMode(Enum):
    """Whether each input tensor has a cache of its own."""

    SEPARATE_TENSOR_CACHE = 0
    GLOBAL_TENSOR_CACHE = 1


class TensorCache:
    """Coordinates, kernel maps and sets by stride."""

    def __init__(self) -> None:
        self.cmaps: dict[Any, Any] = {}
        self.kmaps: dict[Any, Any] = {}
        self.hashmaps: dict[Any, Any] = {}
        self.sites: dict[Any, Any] = {}


class _Global:
    """The peer's interface keeps these for the whole process."""

    mode = TensorCacheMode.SEPARATE_TENSOR_CACHE
    cache: TensorCache | None = None


def set_tensor_cache_mode(mode: TensorCacheMode) -> None:
    """Let new tensors share one cache, or have one each."""
    if not isinstance(mode, TensorCacheMode):
        _check.fail_type("mode", "a TensorCacheMode", type(mode).__name__)
    _Global.mode = mode


def get_tensor_cache_mode() -> TensorCacheMode:
    """The current mode."""
    return _Global.mode


def get_global_tensor_cache() -> TensorCache | None:
    """The cache that new tensors share, or None."""
    return _Global.cache


def set_global_tensor_cache(tensor_cache: TensorCache | None) -> None:
    """Set the cache that new tensors share."""
    _Global.cache = tensor_cache


def clear_global_tensor_cache() -> None:
    """Forget the shared cache."""
    _Global.cache = None


def cache_for(tensor: Any) -> TensorCache:
    """A new tensor's cache."""
    if _Global.mode == TensorCacheMode.SEPARATE_TENSOR_CACHE:
        return TensorCache()
    if _Global.cache is None:
        _Global.cache = TensorCache()
    return _Global.cache
