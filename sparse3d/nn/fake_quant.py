"""Convolutions trained for int8 while they compute in floats: weights are rounded and given back.

The rounding is `torch.ao.quantization`'s (`qconfig.weight`), of the parameter as it is stored: a
scale a channel is one an output channel, but for 1 x 1 layers, which store `[in, out]` memory. With
a norm, the kernel is rounded as inference will see it, times the norm's running scale:

    y = norm(x * round(kernel * scale) / scale + bias),  scale = norm.weight / sqrt(variance + eps)
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ..kernel_map import KernelMap
from ..ops.conv import conv, scaled
from ._convolution import SparseConvolution, activate
from ._fusion import norm_as_scale
from .fused import (
    SpconvAddReLUNd,
    SpconvBnAddReLUNd,
    SpconvBnNd,
    SpconvBnReLUNd,
    SpconvReLUNd,
)

__all__ = [
    "SpConv",
    "SparseConv",
    "SparseConvAddReLU",
    "SparseConvBn",
    "SparseConvBnAddReLU",
    "SparseConvBnReLU",
    "SparseConvReLU",
]

C = TypeVar("C", bound=SparseConvolution)
_OPTIONS = (
    *("ndim", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation"),
    *("groups", "subm", "output_padding", "transposed", "inverse", "indice_key", "algo"),
    *("fp32_accum", "record_voxel_count", "act_type", "act_alpha", "act_beta", "name", "rule"),
)

_BOUNDS = {torch.qint8: (-128, 127), torch.quint8: (0, 255)}


def like(kind: type[C], layer: SparseConvolution, **more: Any) -> C:
    """A layer of another class with a layer's options, sharing its parameters."""
    options = {name: getattr(layer, name) for name in _OPTIONS}
    bias = layer.bias is not None
    weight = layer.weight
    made = kind(**options, bias=bias, device=weight.device, dtype=weight.dtype, **more)
    made.weight, made.bias = layer.weight, layer.bias
    return made.train(layer.training)


def _plain(layer: SparseConv, kernel: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """A float convolution with a layer's options and the given numbers."""
    options = {name: getattr(layer, name) for name in _OPTIONS}
    weight = layer.weight
    made = layer.float_kind(
        **options, bias=bias is not None, device=weight.device, dtype=weight.dtype
    )
    made.set_kernel(kernel.detach())
    made.bias = None if bias is None else nn.Parameter(bias.detach().clone())
    return made.train(layer.training)


class SparseConv(SparseConvolution):
    """A convolution whose kernel is rounded.

    Args:
        *args: as of `SparseConvolution`.
        qconfig: with a `weight` that makes a `torch.ao.quantization` fake quantiser.
        **kwargs: as of `SparseConvolution`.

    Raises:
        ValueError: if `qconfig` is missing.
    """

    rectifies: ClassVar[bool] = False
    float_kind: ClassVar[type[SparseConvolution]] = SparseConvolution
    float_source: ClassVar[type[nn.Module]] = SparseConvolution
    float_pair: ClassVar[type[nn.Module]] = SpconvReLUNd

    def __init__(self, *args: Any, qconfig: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if qconfig is None:
            raise ValueError("qconfig must be given for a layer that rounds its weight, got None")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    def kernel(self) -> torch.Tensor:
        """The kernel as it counts: rounded and given back."""
        return self.as_kernel(self.weight_fake_quant(self.weight))

    def canonical_kernel(self) -> torch.Tensor:
        """The kernel as it is trained."""
        return self.as_kernel(self.weight)

    def forward(self, input: Any, add_input: Any = None) -> Any:
        """Convolve; see `SparseConvolution`."""
        return super().forward(input, add_input)

    def _convolve(
        self, features: torch.Tensor, pairs: KernelMap, residual: torch.Tensor | None
    ) -> torch.Tensor:
        out = super()._convolve(features, pairs, residual)
        return torch.relu(out) if self.rectifies else out

    @classmethod
    def from_float(cls, mod: Any) -> Any:
        """The same of a float layer or container, which must have a `qconfig`.

        Raises:
            TypeError: if it is of another class.
            ValueError: if it has no `qconfig`.
        """
        if not isinstance(mod, cls.float_source):
            wanted = f"mod must be {cls.float_source.__name__} for {cls.__name__}"
            raise TypeError(f"{wanted}, got {type(mod).__name__}")
        parts = [mod] if isinstance(mod, SparseConvolution) else list(mod.children())
        return cls._of(*parts[: 1 + issubclass(cls, SparseConvBn)], getattr(mod, "qconfig", None))

    @classmethod
    def _of(cls, layer: SparseConvolution, *rest: Any) -> Any:
        return like(cls, layer, qconfig=rest[-1])

    def to_float(self) -> Any:
        """The float layer, or container, that it stands for; the rounding is left out."""
        conv = self._float_conv()
        made = type(self).float_pair(conv, nn.ReLU()) if self.rectifies else conv
        return made.train(self.training)

    def _float_conv(self) -> Any:
        return _plain(self, self.canonical_kernel(), self.bias)


class SparseConvReLU(SparseConv):
    """The same, then ReLU."""

    rectifies = True
    float_source = SpconvReLUNd


class SparseConvAddReLU(SparseConvReLU):
    """The same, with a second tensor added before the ReLU."""

    float_source = float_pair = SpconvAddReLUNd


class SparseConvBn(SparseConv):
    """A convolution and a batch norm, the kernel rounded as inference will see it.

    Args:
        *args: as of `SparseConv`.
        eps: of the norm.
        momentum: of the norm.
        freeze_bn: leave the norm's statistics alone, in training too.
        **kwargs: as of `SparseConv`.
    """

    float_source: ClassVar[type[nn.Module]] = SpconvBnNd

    def __init__(
        self,
        *args: Any,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        weight = self.weight
        self.bn = nn.BatchNorm1d(
            self.out_channels, eps, momentum, device=weight.device, dtype=weight.dtype
        )
        self.freeze_bn = freeze_bn
        self.train(self.training)

    def train(self, mode: bool = True) -> Any:
        """As of every module; a frozen norm stays in eval mode."""
        super().train(mode)
        if getattr(self, "freeze_bn", False):
            self.bn.eval()
        return self

    def freeze_bn_stats(self) -> Any:
        """Leave the norm's statistics alone from now on."""
        self.freeze_bn = True
        self.bn.eval()
        return self

    def update_bn_stats(self) -> Any:
        """Let the norm's statistics follow the batches again."""
        self.freeze_bn = False
        self.bn.train()
        return self

    def reset_running_stats(self) -> None:
        self.bn.reset_running_stats()

    def _scale(self) -> torch.Tensor:
        assert self.bn.running_var is not None
        return self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)

    def kernel(self) -> torch.Tensor:
        """The kernel times the norm's scale, rounded and given back."""
        kernel = self.canonical_kernel()
        factors = self._scale().to(kernel.dtype).reshape(-1, *[1] * (kernel.ndim - 1))
        return self.as_kernel(self.weight_fake_quant(self.from_canonical(kernel * factors)))

    def _convolve(
        self, features: torch.Tensor, pairs: KernelMap, residual: torch.Tensor | None
    ) -> torch.Tensor:
        sums = conv(features, self.kernel(), pairs, None, self.groups) / self._scale()
        out = self.bn(sums if self.bias is None else sums + self.bias)
        if residual is not None:
            out = out + residual
        out = activate(out, self.act_type, self.act_alpha)
        return torch.relu(out) if self.rectifies else out

    @classmethod
    def _of(cls, layer: SparseConvolution, *rest: Any) -> Any:
        norm, qconfig = rest
        made = like(cls, layer, qconfig=qconfig, eps=norm.eps, momentum=norm.momentum)
        made.bn.weight, made.bn.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(made.bn, name, getattr(norm, name))
        return made

    def _float_conv(self) -> Any:
        norm = self.bn
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale, shift = norm_as_scale(
            norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias, self.bias
        )
        return _plain(self, scaled(self.canonical_kernel(), scale), shift)


class SparseConvBnReLU(SparseConvBn):
    """The same, then ReLU."""

    rectifies = True
    float_source = SpconvBnReLUNd


class SparseConvBnAddReLU(SparseConvBnReLU):
    """The same, with a second tensor added before the ReLU."""

    float_source = SpconvBnAddReLUNd
    float_pair = SpconvAddReLUNd


class SpConv(SparseConvolution):
    """A float convolution whose kernel was rounded to int8 with fixed scales.

    Args:
        *args: as of `SparseConvolution`.
        weight_qparams: `qscheme`, `dtype`, `scale`, `zero_point` and `axis`, as
            `torch.ao.quantization` hands them over.
        **kwargs: as of `SparseConvolution`.
    """

    weight_scale: torch.Tensor
    weight_zero_point: torch.Tensor

    def __init__(
        self, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        defaults = {"qscheme": torch.per_tensor_affine, "dtype": torch.quint8, "axis": 0}
        given: dict[str, Any] = defaults | {"scale": 1.0, "zero_point": 0} | (weight_qparams or {})
        self.weight_qscheme: torch.qscheme = given["qscheme"]
        self.weight_dtype: torch.dtype = given["dtype"]
        self.weight_axis = int(given["axis"])
        for name in ("scale", "zero_point"):
            value = torch.as_tensor(given[name], device=self.weight.device).clone().detach()
            self.register_buffer(f"weight_{name}", value)

    @property
    def _is_per_channel(self) -> bool:
        return self.weight_qscheme in (torch.per_channel_affine, torch.per_channel_symmetric)

    def kernel(self) -> torch.Tensor:
        """The kernel, rounded and given back."""
        return self.as_kernel(self.get_weight())

    def canonical_kernel(self) -> torch.Tensor:
        """The kernel as it was before."""
        return self.as_kernel(self.weight)

    def forward(self, input: Any, add_input: Any = None) -> Any:
        """Convolve; see `SparseConvolution`."""
        return super().forward(input, add_input)

    def get_weight(self) -> torch.Tensor:
        """The parameter, rounded and given back."""
        weight, zero = self.weight.detach(), self.weight_zero_point
        bounds = _BOUNDS[self.weight_dtype]
        if self._is_per_channel:
            scales, zeros = self.weight_scale.float(), zero.int()
            return torch.fake_quantize_per_channel_affine(
                weight, scales, zeros, self.weight_axis, *bounds
            )
        scale = float(self.weight_scale)
        return torch.fake_quantize_per_tensor_affine(weight, scale, int(zero), *bounds)

    def get_quantized_weight(self) -> torch.Tensor:
        """The parameter as one of torch's quantised tensors."""
        weight, scale, zero = self.weight.detach(), self.weight_scale, self.weight_zero_point
        if self._is_per_channel:
            return torch.quantize_per_channel(
                weight, scale, zero.long(), self.weight_axis, self.weight_dtype
            )
        return torch.quantize_per_tensor(weight, float(scale), int(zero), self.weight_dtype)

    @classmethod
    def from_float(cls, float_conv: SparseConvolution, weight_qparams: dict[str, Any]) -> Any:
        """The same layer with a rounded kernel."""
        return like(cls, float_conv, weight_qparams=weight_qparams)
