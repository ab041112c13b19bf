"""spconv's int8 names: what prepares, rounds and observes. Int8 layers are not here, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    "is_dequantize_node",
    "prepare_spconv_torch_inference",
    "quantize_per_tensor",
    "quantized_add",
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


def quantized_add(x: Any, y: Any, scale: float, zero_point: int) -> Any:
    """Sum of two quantised tensors, dense or sparse on the same sites, quantised.

    Args:
        x: quantised.
        y: likewise.
        scale: of the sum.
        zero_point: of the sum.
    """
    kind = (x.features if isinstance(x, SparseConvTensor) else x).dtype
    return quantize_per_tensor(x.dequantize() + y.dequantize(), scale, zero_point, kind)


def is_dequantize_node(node: Any) -> bool:
    """Whether a node of a graph calls `dequantize`."""
    return bool(node.op == "call_method" and node.target == "dequantize")


def transform_qdq(m: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Let a graph's calls of `torch.quantize_per_tensor` and of quantised sums take sparse tensors;
    changes the graph."""
    for node in m.graph.nodes:
        if node.op == "call_function" and node.target is torch.quantize_per_tensor:
            node.target = quantize_per_tensor
        elif node.op == "call_function" and node.target is torch.ops.quantized.add:
            node.target = quantized_add
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


def get_spconv_backend_config(additional_bns: Sequence[type[nn.Module]] | None = None) -> Any:
    """What `torch.ao.quantization.quantize_fx` fuses and rounds of sparse layers.

    Args:
        additional_bns: norms to fuse, beside `BatchNorm1d` and the sparse ones.
    """
    from ._int8_config import OURS, backend_config

    return backend_config(OURS, additional_bns or ())


def get_spconv_convert_custom_config() -> Any:
    """Fused containers that `torch.ao.quantization.quantize_fx` leaves to int8 layers."""
    from torch.ao.quantization.fx.custom_config import ConvertCustomConfig

    from .fused import SpconvAddReLUNd, SpconvReLUNd
    from .int8 import SparseConvReLU

    config = ConvertCustomConfig()
    for kind in (SpconvReLUNd, SpconvAddReLUNd):
        config.set_observed_to_quantized_mapping(kind, SparseConvReLU)
    return config


def get_spconv_fmod_to_qat_mapping() -> dict[Any, Any]:
    """Container with a norm -> the layer that rounds its kernel."""
    from ._int8_config import OURS, to_qat

    return to_qat(OURS)


def get_spconv_qat_to_static_mapping() -> dict[Any, Any]:
    """Layer -> what would compute it in int8."""
    from ._int8_config import OURS, qat_to_static

    return qat_to_static(OURS)


def prepare_spconv_torch_inference(with_linear: bool) -> None:
    """Have torch lower sparse layers to int8, which they refuse.

    Args:
        with_linear: linear layers too.
    """
    from ._int8_config import OURS

    lower_to_int8(OURS, with_linear)


def lower_to_int8(layers: Any, with_linear: bool) -> None:
    """Add a library's layers to torch's own tables, for the process: so spconv has it."""
    from torch.ao.quantization.fx import _lower_to_native_backend as torch_tables

    from ._int8_config import lowered

    fused, single = lowered(layers, with_linear)
    torch_tables.STATIC_LOWER_FUSED_MODULE_MAP.update(fused)
    torch_tables.STATIC_LOWER_MODULE_MAP.update(single)
