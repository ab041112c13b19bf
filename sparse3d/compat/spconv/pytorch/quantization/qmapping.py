"""`spconv.pytorch.quantization.qmapping`."""

from __future__ import annotations

from typing import Any

from ._layers import layers

__all__ = ["get_spconv_fmod_to_qat_mapping", "get_spconv_qat_to_static_mapping"]


def get_spconv_fmod_to_qat_mapping() -> dict[Any, Any]:
    """As `sparse3d.nn`'s, of the stand-in's layers."""
    from .....nn._int8_config import to_qat

    return to_qat(layers())


def get_spconv_qat_to_static_mapping() -> dict[Any, Any]:
    """As `sparse3d.nn`'s, of the stand-in's layers."""
    from .....nn._int8_config import qat_to_static

    return qat_to_static(layers())
