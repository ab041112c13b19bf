"""`spconv.pytorch.quantization.backend_cfg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from .....nn import quantization as _quantization
from .....nn.quantization import get_spconv_convert_custom_config
from ._layers import layers

__all__ = [
    "get_spconv_backend_config",
    "get_spconv_convert_custom_config",
    "get_spconv_prepare_custom_config",
    "prepare_spconv_torch_inference",
]

_DTYPES = (
    "conv_dtype_configs",
    "weighted_op_qint8_dtype_config",
    "non_weighted_op_qint8_dtype_config",
)


def __getattr__(name: str) -> Any:
    """`conv_dtype_configs` and its parts, made when asked for: torch's take a while to import."""
    if name not in _DTYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .....nn._int8_config import PLAIN, WEIGHTED

    return {_DTYPES[0]: [WEIGHTED], _DTYPES[1]: WEIGHTED, _DTYPES[2]: PLAIN}[name]


def get_spconv_backend_config(additional_bns: Sequence[type[nn.Module]] | None = None) -> Any:
    """As `sparse3d.nn`'s, of the stand-in's layers."""
    from .....nn._int8_config import backend_config

    return backend_config(layers(), additional_bns or ())


def get_spconv_prepare_custom_config(
    additional_bns: Sequence[type[nn.Module]] | None = None,
) -> Any:
    """As `sparse3d.nn`'s, of the stand-in's layers."""
    config = _quantization.get_spconv_prepare_custom_config(additional_bns)
    kinds = [*layers().convs, *config.non_traceable_module_classes]
    return config.set_non_traceable_module_classes(kinds)


def prepare_spconv_torch_inference(with_linear: bool) -> None:
    """As `sparse3d.nn`'s, of the stand-in's layers."""
    _quantization.lower_to_int8(layers(), with_linear)
