"""spconv's int8 names. What prepares and observes is here; int8 layers are not, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import nn

from .. import _check
from ..tensor import SparseConvTensor

__all__ = [
    "get_default_spconv_qconfig_mapping",
    "get_default_spconv_trt_ptq_qconfig",
    "get_default_spconv_trt_qat_qconfig",
    "get_spconv_backend_config",
    "get_spconv_convert_custom_config",
    "get_spconv_fmod_to_qat_mapping",
    "get_spconv_prepare_custom_config",
    "get_spconv_qat_to_static_mapping",
    "prepare_spconv_torch_inference",
    "quantize_per_tensor",
    "remove_conv_add_dq",
    "transform_qdq",
]


def quantize_per_tensor(ten: Any, scale: Any, zero_point: Any, dtype: torch.dtype) -> Any:
    """`torch.quantize_per_tensor` of a tensor, of a sparse tensor's features, or of each in a list.

    Args:
        ten: dense or sparse tensor, or a list of them.
        scale: of the values, one for each entry of a list.
        zero_point: likewise.
        dtype: quantised, `torch.qint8` say.
    """
    if isinstance(ten, (list, tuple)):
        rows = zip(ten, scale, zero_point, strict=True)
        return [quantize_per_tensor(*row, dtype) for row in rows]
    if isinstance(ten, SparseConvTensor):
        features = quantize_per_tensor(ten.features, scale, zero_point, dtype)
        return ten._with(features, None, ten.indice_dict)
    return torch.quantize_per_tensor(_check.tensor("ten", ten), scale, zero_point, dtype)


def transform_qdq(m: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Let a graph's calls of `torch.quantize_per_tensor` take sparse tensors; changes the graph."""
    for node in m.graph.nodes:
        if node.op == "call_function" and node.target is torch.quantize_per_tensor:
            node.target = quantize_per_tensor
    return _tidy(m)


def remove_conv_add_dq(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Drop what a graph does not use; there are no int8 layers to take quantised inputs."""
    return _tidy(model)


def _tidy(m: torch.fx.GraphModule) -> torch.fx.GraphModule:
    m.graph.eliminate_dead_code()
    m.recompile()
    m.graph.lint()
    return m


def get_default_spconv_trt_ptq_qconfig(backend: str, version: int) -> Any:
    """Histograms of activations and per-channel extrema of weights, symmetric int8."""
    from ._observers import SYMMETRIC

    return SYMMETRIC


def get_default_spconv_trt_qat_qconfig(backend: str, version: int) -> Any:
    """Fake quantisation of activations and weights in training, symmetric int8."""
    from ._observers import SYMMETRIC_IN_TRAINING

    return SYMMETRIC_IN_TRAINING


def get_default_spconv_qconfig_mapping(
    is_qat: bool, backend: str = "fbgemm", version: int = 0
) -> Any:
    """One of the two configurations for every layer but those that only print."""
    from torch.ao.quantization import QConfigMapping

    from .modules import PrintCurrentTime, PrintTensorMeta

    choose = get_default_spconv_trt_qat_qconfig if is_qat else get_default_spconv_trt_ptq_qconfig
    mapping = QConfigMapping().set_global(choose(backend, version))
    for kind in (PrintTensorMeta, PrintCurrentTime):
        mapping.set_object_type(kind, None)
    return mapping


def get_spconv_prepare_custom_config(
    additional_bns: Sequence[type[nn.Module]] | None = None,
) -> Any:
    """What `torch.ao.quantization.quantize_fx` must not trace into: sparse layers and norms."""
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    from .conv import DEFAULT_SPARSE_CONV_TYPES
    from .modules import (
        PrintCurrentTime,
        PrintTensorMeta,
        SparseBatchNorm,
        SparseReLU,
        SparseSyncBatchNorm,
    )

    kinds = [SparseReLU, SparseBatchNorm, SparseSyncBatchNorm, PrintTensorMeta, PrintCurrentTime]
    config = PrepareCustomConfig()
    return config.set_non_traceable_module_classes(
        [*DEFAULT_SPARSE_CONV_TYPES, *kinds, *(additional_bns or ())]
    )


class _Refusal:
    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = "Not here: int8 layers are not implemented."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{self.__name__} must be left out with sparse3d, got a call; int8 quantisation is not "
            "implemented, use float16 or bfloat16 (torch.autocast)"
        )


get_spconv_backend_config = _Refusal("get_spconv_backend_config")
get_spconv_convert_custom_config = _Refusal("get_spconv_convert_custom_config")
get_spconv_fmod_to_qat_mapping = _Refusal("get_spconv_fmod_to_qat_mapping")
get_spconv_qat_to_static_mapping = _Refusal("get_spconv_qat_to_static_mapping")
prepare_spconv_torch_inference = _Refusal("prepare_spconv_torch_inference")
