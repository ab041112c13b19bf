"""Sparse convolution layers with spconv's names, arguments, parameters and key rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from .. import _check
from ..geometry import (
    Geometry,
    normalize,
    output_shape,
    submanifold_padding,
    transposed_output_shape,
)
from ..kernel_map import Coordinates, KernelMap
from ..ops.conv import ACTIVATIONS, conv, fused_conv
from ..tensor import IndiceData, SparseConvTensor
from ._layer import SitesLayer
from ._preparation import is_preparing
from ._reuse import check_inverse, check_reuse, serves
from .core import ConvAlgo

__all__ = ["FILTER_HWIO", "SparseConvolution", "SparseConvolutionBase"]

Size = int | Sequence[int]
RULES = ("footprint", "floor")


_Weights = tuple[torch.Tensor, torch.Tensor | None, str, float]
"""True kernel, bias, activation and its slope."""


class SparseConvolution(SitesLayer):
    """Every sparse convolution: plain, submanifold, transposed, inverse.

    The parameter `weight` has spconv 2.x's shape `[out, *kernel_size, in / groups]`, and its
    memory order too: a 1 x 1 layer of one group (submanifold, or stride 1 and not inverse) stores
    an `[in, out]` matrix in that shape. `kernel()` gives the true `[out, *kernel_size, in /
    groups]`.

    Args:
        ndim: spatial axes D, 1 to 4.
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: one integer, or one an axis.
        stride: likewise; a submanifold layer has none.
        padding: likewise; a submanifold layer centres itself and takes any value.
        dilation: likewise.
        groups: channel groups; C_in makes a depthwise layer.
        bias: add a bias at the output sites.
        subm: outputs are the inputs.
        output_padding: extra grid of a transposed layer.
        transposed: `q = p * stride - padding + t * dilation`.
        inverse: undo the layer that left `indice_key`: its pairs with the roles swapped.
        indice_key: name under which the kernel map is kept or found.
        algo: accepted for spconv's signature; the backend chooses.
        fp32_accum: accepted; sums are always float32 at least.
        record_voxel_count: keep the largest output row count of training in a buffer.
        act_type: None, "relu", "leaky_relu" or "sigmoid", applied last.
        act_alpha: slope of leaky_relu below zero.
        act_beta: accepted for spconv's signature.
        large_kernel_fast_algo: accepted for spconv's signature.
        name: shown in error messages.
        device: of the parameters.
        dtype: of the parameters.
        rule: which sites a strided layer makes: "footprint" (spconv) or "floor" (MinkowskiEngine).

    Raises:
        ValueError: if sizes, groups or the combination of options make no layer.
        TypeError: if a size is not an integer.
    """

    bias: nn.Parameter | None
    # spconv takes a key's pairs row by row, whatever became of the positions; `compat.spconv` sets
    # this, for submanifold and inverse layers.
    trusts_edited_sites: ClassVar[bool] = False
    checkpoint_layout: ClassVar[str] = "spconv"

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Size = 3,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        subm: bool = False,
        output_padding: Size = 0,
        transposed: bool = False,
        inverse: bool = False,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        act_type: str | None = None,
        act_alpha: float = 0,
        act_beta: float = 0,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rule: str = "footprint",
    ) -> None:
        super().__init__(name=name)
        self.ndim = ndim
        self.in_channels = _check.positive("in_channels", in_channels)
        self.out_channels = _check.positive("out_channels", out_channels)
        self.kernel_size = list(normalize("kernel_size", kernel_size, ndim, 1))
        self.stride = list(normalize("stride", stride, ndim, 1))
        self.padding = list(normalize("padding", padding, ndim, 0))
        self.dilation = list(normalize("dilation", dilation, ndim, 1))
        self.output_padding = list(normalize("output_padding", output_padding, ndim, 0))
        self.groups = _check.positive("groups", groups)
        self.subm = subm
        self.transposed = transposed
        self.inverse = inverse
        self.indice_key = indice_key
        self.algo = ConvAlgo.Native if algo is None else algo
        self.fp32_accum = fp32_accum
        self.record_voxel_count = record_voxel_count
        self.act_type = activation_name(act_type)
        self.act_alpha = act_alpha
        self.act_beta = act_beta
        self.rule = rule
        self._check_options()
        shape = [out_channels, *self.kernel_size, in_channels // groups]
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        shift = torch.empty(out_channels, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if shift is None else nn.Parameter(shift))
        if record_voxel_count and not subm and not inverse:
            self._count_voxels(device)
        self.reset_parameters()

    def _check_options(self) -> None:
        label = self._label()
        if not 1 <= self.ndim <= 4:
            _check.fail(f"{label}: ndim", "1 to 4", self.ndim)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            channels = f"{self.in_channels} and {self.out_channels}"
            _check.fail(f"{label}: channels", f"multiples of groups={self.groups}", channels)
        if self.rule not in RULES:
            _check.fail(f"{label}: rule", f"one of {RULES}", repr(self.rule))
        if self.inverse and self.indice_key is None:
            way_out = "give the key of the layer to undo"
            _check.fail(f"{label}: indice_key", "given for an inverse layer", None, way_out)
        if self.subm:
            submanifold_padding(self.kernel_size, self.dilation)
            if max(self.kernel_size) > 1 and max(self.stride) > 1:
                way_out = "use SparseConv for strides"
                _check.fail(f"{label}: stride", "1 (outputs are the inputs)", self.stride, way_out)
        elif self.stores_transposed and max(self.padding) > 0:
            _check.fail(f"{label}: padding", "0 for a 1 x 1 layer of stride 1", self.padding)
        for axis, (extra, stride) in enumerate(zip(self.output_padding, self.stride, strict=True)):
            if extra and not (self.transposed and extra < stride):
                _check.fail(
                    f"{label}: output_padding axis {axis}",
                    "below the stride of a transposed layer",
                    extra,
                )

    @property
    def conv1x1(self) -> bool:
        """One tap."""
        return max(self.kernel_size) == 1

    @property
    def is_pointwise(self) -> bool:
        """One tap that pairs every site with itself: no map is needed."""
        return self.conv1x1 and not self.inverse and (self.subm or max(self.stride) == 1)

    @property
    def stores_transposed(self) -> bool:
        """Whether `weight` holds an [in, out] matrix, as spconv's 1 x 1 layers do."""
        return self.groups == 1 and self.is_pointwise

    @property
    def geometry(self) -> Geometry:
        """Kernel size, stride, padding and dilation that the equation reads."""
        padding = self.padding
        if self.subm:
            padding = list(submanifold_padding(self.kernel_size, self.dilation))
        return Geometry(
            tuple(self.kernel_size), tuple(self.stride), tuple(padding), tuple(self.dilation)
        )

    def kernel(self) -> torch.Tensor:
        """The true weight [out, *kernel_size, in / groups]; a view of the parameter."""
        return self.as_kernel(self._own("weight"))

    def as_kernel(self, stored: torch.Tensor) -> torch.Tensor:
        """What the parameter stores as a true weight; undoes `from_canonical`."""
        if not (self.conv1x1 and self.stores_transposed):
            return stored
        matrix = stored.reshape(self.in_channels, self.out_channels).t()
        return matrix.reshape(stored.shape)

    def reset_parameters(self) -> None:
        """Kaiming-uniform with a = sqrt(5): weight and bias in +-1/sqrt(fan_in)."""
        fan_in = self.in_channels // self.groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def is_inverseable(self) -> bool:
        """Whether an inverse layer can name this one."""
        return self.indice_key is not None and not self.subm

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        if not self.subm and not self.inverse:
            parts.append(f"stride={self.stride}, padding={self.padding}")
        parts.append(f"dilation={self.dilation}")
        if self.groups > 1:
            parts.append(f"groups={self.groups}")
        parts.append(f"bias={self.bias is not None}")
        if self.indice_key is not None:
            parts.append(f"indice_key={self.indice_key!r}")
        return ", ".join(parts)

    def _key_label(self) -> str:
        return f"{self._label()}: indice_key {self.indice_key!r}"

    def forward(
        self, input: SparseConvTensor, add_input: SparseConvTensor | None = None
    ) -> SparseConvTensor:
        """Convolve.

        Args:
            input: N sites, C_in channels.
            add_input: residual on the output sites, added before the activation.

        Returns:
            M sites, C_out channels.

        Raises:
            ValueError: if channels, grid or a shared `indice_key` do not fit (names both
                geometries).
        """
        return self._run(input, add_input, None)

    def run_with(
        self,
        input: SparseConvTensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        add_input: SparseConvTensor | None = None,
        act_type: object = None,
        act_alpha: float = 0.0,
    ) -> SparseConvTensor:
        """Convolve with another weight, bias and activation than the layer's own, as layers do that
        round or mask their weights.

        Args:
            input: as of `forward`.
            weight: stored as the layer's own is.
            bias: [C_out] or None.
            add_input: as of `forward`.
            act_type: None, a name, or spconv's enum.
            act_alpha: slope of a leaky ReLU.

        Returns:
            M sites, C_out channels; differentiable in weight and bias.

        Raises:
            ValueError: as of `forward`.
        """
        given = self.as_kernel(weight), bias, activation_name(act_type), act_alpha
        return self._run(input, add_input, given)

    def _run(
        self, input: SparseConvTensor, add_input: SparseConvTensor | None, given: _Weights | None
    ) -> SparseConvTensor:
        self._check_input(input)
        self._check_channels(input)
        pairs, target, indice_dict = self._map(input, self._sites(input))
        residual = None if add_input is None else self._residual(add_input, pairs)
        if is_preparing():
            pairs.plan()
            pairs.grad_plan()
            features = input.features.new_zeros((pairs.num_out, self.out_channels))
        else:
            if given is None:
                features = self._convolve(input.features, pairs, residual)
            else:
                features = self._computed(input.features, pairs, residual, given)
            if target._has_room and given is None and not self._fills(residual):
                target._note_zeros(features)
        if self._counts:
            self._record(pairs.num_out)
        return input.on_sites(features, target, indice_dict)

    def run_fused(
        self,
        input: SparseConvTensor,
        scale: torch.Tensor | None,
        bias: torch.Tensor | None,
        add_input: SparseConvTensor | None,
        activation: str,
        alpha: float,
    ) -> SparseConvTensor:
        """`act(kernel * x * scale + bias + add_input)` in one pass, for inference."""
        self._check_channels(input)
        pairs, target, indice_dict = self._map(input, self._sites(input))
        residual = None if add_input is None else self._residual(add_input, pairs)
        features = fused_conv(
            input.features,
            self.kernel(),
            pairs,
            bias,
            residual,
            activation,
            alpha,
            self.groups,
            scale,
        )
        return input.on_sites(features, target, indice_dict)

    def set_kernel(self, kernel: torch.Tensor) -> None:
        """Store a true kernel [out, *kernel_size, in / groups] in the parameter, in its own order.

        Raises:
            ValueError: if the shape is another.
        """
        with torch.no_grad():
            self.weight.copy_(self.from_canonical(kernel))

    def from_canonical(self, kernel: torch.Tensor) -> torch.Tensor:
        """A true kernel as the parameter stores it.

        Raises:
            ValueError: if the shape is another.
        """
        if kernel.shape != self.weight.shape:
            _check.fail("kernel", f"of shape {list(self.weight.shape)}", list(kernel.shape))
        if self.stores_transposed:
            kernel = kernel.reshape(self.out_channels, self.in_channels).t()
        return kernel.reshape(self.weight.shape)

    def canonical_kernel(self) -> torch.Tensor:
        """`kernel()`, under the name that stand-ins of other libraries have too."""
        return self.kernel()

    def _residual(self, add_input: SparseConvTensor, pairs: KernelMap) -> torch.Tensor:
        label = f"{self._label()}: add_input"
        rows, width = add_input.features.shape
        _check.same_rows(label, rows, "the output", pairs.num_out)
        _check.channels(label, self.out_channels, width)
        return add_input.features

    def _own(self, name: str) -> Any:
        """An attribute, past `nn.Module.__getattr__` where it is a parameter, not computed."""
        if not torch.compiler.is_compiling() and name in self._parameters:
            return self._parameters[name]
        return getattr(self, name)

    def _fills(self, residual: torch.Tensor | None) -> bool:
        """Whether a row without pairs may become anything but zero."""
        plain = residual is None and self.bias is None and self.act_type == "none"
        return self.is_pointwise or not plain

    def _check_channels(self, input: SparseConvTensor) -> None:
        channels = input.features.shape[1]
        if channels != self.in_channels:
            _check.channels(self._label(), self.in_channels, channels)

    def _convolve(
        self, features: torch.Tensor, pairs: KernelMap, residual: torch.Tensor | None
    ) -> torch.Tensor:
        own = self.kernel(), self._own("bias"), self.act_type, self.act_alpha
        return self._computed(features, pairs, residual, own)

    def _computed(
        self,
        features: torch.Tensor,
        pairs: KernelMap,
        residual: torch.Tensor | None,
        given: _Weights,
    ) -> torch.Tensor:
        kernel, bias, activation, alpha = given
        needs_grad = torch.is_grad_enabled() and any(
            value is not None and value.requires_grad
            for value in (features, kernel, bias, residual)
        )
        if not needs_grad:
            return fused_conv(
                features,
                kernel,
                pairs,
                bias,
                residual,
                activation,
                alpha,
                self.groups,
            )
        out = conv(features, kernel, pairs, bias, self.groups)
        if residual is not None:
            out = out + residual
        return activate(out, activation, alpha)

    def _map(
        self, input: SparseConvTensor, sites: Coordinates
    ) -> tuple[KernelMap, Coordinates, dict[str, IndiceData]]:
        """The kernel map, the output sites, and the keys that the output carries."""
        found = input.find_indice_pair(self.indice_key)
        own = self.subm and not self.inverse
        if own and found is not None and serves(found, self.kernel_size, self.dilation, sites):
            return found.kernel_map, sites, input.indice_dict
        if self.is_pointwise:
            return sites.identity(), sites, input.indice_dict
        if self.inverse:
            data = check_inverse(
                self._key_label(), self.kernel_size, found, sites, self.trusts_edited_sites
            )
            return data.kernel_map.transposed(), data.inputs, input.indice_dict
        by_rows = self.trusts_edited_sites
        if found is not None and found.is_subm and self.subm and not found.is_current():
            found = found if by_rows else None  # its sites were edited: the pairs are made anew
        if found is not None:
            check_reuse(self._key_label(), self.geometry, self.subm, found, sites, by_rows)
            kept = sites if found.outputs.indices is sites.indices else found.outputs
            return found.kernel_map, kept if by_rows else sites, input.indice_dict
        if self.subm:
            pairs, target = sites.submanifold(self.kernel_size, self.dilation), sites
        else:
            pairs, target = self._create(sites)
        if self.indice_key is None:
            return pairs, target, input.indice_dict
        data = self._leave(pairs, sites, target)
        return pairs, target, {**input.indice_dict, self.indice_key: data}

    def _create(self, sites: Coordinates) -> tuple[KernelMap, Coordinates]:
        shape, grid = sites.spatial_shape, None
        if shape is not None:
            if self.transposed:
                grid = transposed_output_shape(shape, self.geometry, self.output_padding)
            elif self.rule == "floor":
                grid = tuple(-(-n // s) for n, s in zip(shape, self.stride, strict=True))
            else:
                grid = output_shape(shape, self.geometry)
            _check.grid(self._label(), grid, shape)
        if self.rule == "floor" and not self.transposed:
            return sites.floor(self.geometry, grid)
        return sites.footprint(self.geometry, grid, transposed=self.transposed)


def activation_name(act_type: object) -> str:
    """Our name of an activation: None, a name, or spconv's enum."""
    if act_type is None:
        return "none"
    name = str(getattr(act_type, "name", act_type)).lower()
    name = {"leakyrelu": "leaky_relu", "none_": "none"}.get(name, name)
    if name not in ACTIVATIONS:
        _check.fail("act_type", f"one of {ACTIVATIONS}", repr(act_type))
    return name


def activate(values: torch.Tensor, activation: str, alpha: float) -> torch.Tensor:
    """Apply a named activation, differentiably."""
    if activation == "relu":
        return torch.relu(values)
    if activation == "leaky_relu":
        return nn.functional.leaky_relu(values, alpha)
    if activation == "sigmoid":
        return torch.sigmoid(values)
    return values


SparseConvolutionBase = SparseConvolution
FILTER_HWIO = False
