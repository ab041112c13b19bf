"""What `torch.ao.quantization` must know of sparse layers: which runs it fuses, which layers it
rounds, and what it would compute in int8."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.ao.quantization.backend_config import (
    BackendPatternConfig,
    DTypeConfig,
    ObservationType,
    get_tensorrt_backend_config,
)
from torch.ao.quantization.utils import MatchAllNode

from . import fake_quant, int8
from ._convolution import SparseConvolution
from .conv import DEFAULT_SPARSE_CONV_TYPES
from .folding import fuse_conv_bn, fuse_conv_bn_add_relu, fuse_conv_bn_relu
from .fused import (
    SpconvAddReLUNd,
    SpconvBnAddReLUNd,
    SpconvBnNd,
    SpconvBnReLUNd,
    SpconvReLUNd,
)
from .modules import (
    PrintCurrentTime,
    SparseBatchNorm,
    SparseIdentity,
    SparseReLU,
    SparseSyncBatchNorm,
    ToDense,
)
from .pool import ALL_POOL_LAYERS

__all__ = [
    "OURS",
    "PLAIN",
    "WEIGHTED",
    "Layers",
    "backend_config",
    "lowered",
    "qat_to_static",
    "to_qat",
]

WEIGHTED = DTypeConfig(
    input_dtype=torch.qint8,
    output_dtype=torch.qint8,
    weight_dtype=torch.qint8,
    bias_dtype=torch.float,
)
PLAIN = DTypeConfig(input_dtype=torch.qint8, output_dtype=torch.qint8)
_RELUS = (nn.ReLU, nn.functional.relu, SparseReLU)
_SUMS = (torch.add, operator.add)


class Layers(NamedTuple):
    """One library's classes: its convolutions, its rounded ones, and those with fixed scales."""

    convs: Sequence[type[nn.Module]]
    pools: Sequence[type[nn.Module]]
    reference: type[nn.Module]
    conv: type[nn.Module]
    conv_relu: type[nn.Module]
    conv_add_relu: type[nn.Module]
    conv_bn: type[nn.Module]
    conv_bn_relu: type[nn.Module]
    conv_bn_add_relu: type[nn.Module]

    def rounded(self) -> dict[type[nn.Module], type[nn.Module]]:
        """Container -> the layer that rounds its kernel."""
        return {
            SpconvReLUNd: self.conv_relu,
            SpconvAddReLUNd: self.conv_add_relu,
            SpconvBnNd: self.conv_bn,
            SpconvBnReLUNd: self.conv_bn_relu,
            SpconvBnAddReLUNd: self.conv_bn_add_relu,
        }


OURS = Layers(
    (*DEFAULT_SPARSE_CONV_TYPES, SparseConvolution),
    tuple(ALL_POOL_LAYERS),
    fake_quant.SpConv,
    fake_quant.SparseConv,
    fake_quant.SparseConvReLU,
    fake_quant.SparseConvAddReLU,
    fake_quant.SparseConvBn,
    fake_quant.SparseConvBnReLU,
    fake_quant.SparseConvBnAddReLU,
)


def _in_pair(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    return lambda is_qat, first, second: kind(first, second)


def _conv_of(pattern: Any) -> Any:
    """The convolution in (relu, (add, convolution or (norm, convolution), other))."""
    inner = pattern[1][1]
    return inner[1] if isinstance(inner, tuple) else inner


def _fused_add(is_qat: bool, relu: Any, add_pattern: Any) -> Any:
    return SpconvAddReLUNd(add_pattern[1], relu)


def _sum_pattern(relu: Any, add: Any, inner: Any, fuser: Any, fused: Any) -> Any:
    made: Any = BackendPatternConfig()
    made._set_pattern_complex_format((relu, (add, inner, MatchAllNode)))
    made.set_dtype_configs([WEIGHTED]).set_fuser_method(fuser).set_fused_module(fused)
    made._set_root_node_getter(_conv_of)
    return made._set_extra_inputs_getter(lambda pattern: [pattern[1][2]])


def _norm_patterns(convs: Iterable[Any], norm: Any) -> list[Any]:
    made: list[Any] = []
    for conv in convs:
        pair = BackendPatternConfig((conv, norm)).set_dtype_configs([WEIGHTED])
        made.append(pair.set_fuser_method(fuse_conv_bn).set_fused_module(SpconvBnNd))
        for relu in _RELUS:
            run = BackendPatternConfig((conv, norm, relu)).set_dtype_configs([WEIGHTED])
            made.append(run.set_fuser_method(fuse_conv_bn_relu).set_fused_module(SpconvBnReLUNd))
        made += [
            _sum_pattern(SparseReLU, add, (norm, conv), fuse_conv_bn_add_relu, SpconvBnAddReLUNd)
            for add in _SUMS
        ]
    return made


def _conv_patterns(layers: Layers, conv: Any) -> list[Any]:
    observed = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT

    def rooted(kind: Any) -> Any:
        made = BackendPatternConfig(kind).set_observation_type(observed)
        made.set_dtype_configs([WEIGHTED]).set_root_module(conv)
        return made.set_reference_quantized_module(layers.reference)

    made = [rooted(conv).set_qat_module(layers.conv), rooted(layers.conv)]
    for relu in _RELUS:
        pair = BackendPatternConfig((conv, relu)).set_dtype_configs([WEIGHTED])
        made.append(pair.set_fuser_method(_in_pair(SpconvReLUNd)).set_fused_module(SpconvReLUNd))
    made += [_sum_pattern(SparseReLU, add, conv, _fused_add, SpconvAddReLUNd) for add in _SUMS]
    for container, rounded in layers.rounded().items():
        if container in (SpconvReLUNd, SpconvAddReLUNd):
            made.append(rooted(container).set_qat_module(rounded))
        else:
            whole = BackendPatternConfig(container).set_dtype_configs([WEIGHTED])
            made.append(whole.set_qat_module(rounded))
        made.append(rooted(rounded))
    return made


def backend_config(layers: Layers, norms: Sequence[type[nn.Module]]) -> Any:
    """TensorRT's configuration with the sparse layers in it.

    Args:
        layers: of one library.
        norms: to fuse, beside `BatchNorm1d` and the sparse ones.
    """
    patterns: list[Any] = []
    for norm in (SparseBatchNorm, nn.BatchNorm1d, SparseSyncBatchNorm, *norms):
        patterns += _norm_patterns(layers.convs, norm)
    for conv in layers.convs:
        patterns += _conv_patterns(layers, conv)
    shared = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    for kind in (ToDense, SparseIdentity, PrintCurrentTime, *layers.pools):
        passing = BackendPatternConfig(kind).set_observation_type(shared)
        patterns.append(passing.set_dtype_configs([PLAIN]))
    return get_tensorrt_backend_config().set_backend_pattern_configs(patterns)


def qat_to_static(layers: Layers) -> dict[Any, Any]:
    """Layer -> what would compute it in int8."""
    made: dict[Any, Any] = dict.fromkeys(layers.convs, int8.SparseConv)
    with_relu = (SpconvReLUNd, layers.conv_bn_relu, layers.conv_relu)
    return made | {layers.conv_bn: int8.SparseConv} | dict.fromkeys(with_relu, int8.SparseConvReLU)


def to_qat(layers: Layers) -> dict[Any, Any]:
    """Container with a norm -> the layer that rounds its kernel."""
    plain = (SpconvReLUNd, SpconvAddReLUNd)
    return {kind: made for kind, made in layers.rounded().items() if kind not in plain}


def lowered(layers: Layers, with_linear: bool) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What torch lowers to int8: fused containers, and layers with fixed scales."""
    from torch.ao.nn.intrinsic import LinearReLU
    from torch.ao.nn.quantized.reference import Linear

    fused: dict[Any, Any] = {
        SpconvReLUNd: (layers.reference, int8.SparseConvReLU),
        SpconvAddReLUNd: (layers.reference, int8.SparseConvAddReLU),
    }
    single: dict[Any, Any] = {layers.reference: int8.SparseConv}
    if with_linear:
        fused[LinearReLU] = (Linear, int8.LinearPerChannelWeightReLU)
        single[Linear] = int8.LinearPerChannelWeight
    return fused, single
