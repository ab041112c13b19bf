"""`spconv.pytorch.conv`."""

from __future__ import annotations

from typing import Any

import torch

from ....kernel_map import Coordinates, KernelMap
from ....nn import conv as _conv
from ....nn._convolution import activation_name
from ....nn._reuse import check_inverse, check_reuse
from ....nn.conv import FILTER_HWIO
from ....tensor import IndiceData as _IndiceData
from ....tensor import SparseConvTensor as _Tensor
from ...cumm import tensorview as tv
from . import functional as Fsp
from . import ops
from .core import ConvAlgo, ImplicitGemmIndiceData, IndiceData, SparseConvTensor, expand_nd
from .modules import SparseModule

__all__ = [
    "DEFAULT_SPARSE_CONV_TYPES",
    "FILTER_HWIO",
    "ConvAlgo",
    "Fsp",
    "ImplicitGemmIndiceData",
    "IndiceData",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseConvolutionBase",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseModule",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
    "expand_nd",
    "ops",
    "tv",
]


class SparseConvolution(_conv.SparseConvolution):
    """Every sparse convolution; a stride on a submanifold layer is ignored, as in spconv."""

    trusts_edited_sites = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that overrides the peer's hook alone has it asked by `forward`."""
        super().__init_subclass__(**kwargs)
        if "_conv_forward" in vars(cls) and "forward" not in vars(cls):
            cls.forward = _ask_hook  # type: ignore[assignment]

    def _conv_forward(
        self,
        training: bool,
        input: _Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        add_input: _Tensor | None = None,
        channel_scale: torch.Tensor | None = None,
        output_scale: float | None = None,
        name: str | None = None,
        sparse_unique_name: str = "",
        act_type: object = None,
        act_alpha: float = 0,
        act_beta: float = 0,
    ) -> _Tensor:
        """What quantisers and exporters call or override: the layer with weights that are given.

        Args:
            training: accepted, as are `name`, `sparse_unique_name` and `act_beta`.
            input: N sites, C_in channels.
            weight: stored as the layer's own is.
            bias: [C_out] or None.
            add_input: residual on the output sites.
            channel_scale: must be None; int8's.
            output_scale: must be None; int8's.
            name: see `training`.
            sparse_unique_name: see `training`.
            act_type: activation, after the residual.
            act_alpha: slope of a leaky ReLU.
            act_beta: see `training`.

        Raises:
            NotImplementedError: if a scale of int8 is given.
        """
        for scale, value in (("channel_scale", channel_scale), ("output_scale", output_scale)):
            if value is not None:
                got = "a tensor" if isinstance(value, torch.Tensor) else value
                words = f"{scale} must be None, got {got}; int8 layers are not implemented"
                raise NotImplementedError(words)
        return self.run_with(input, weight, bias, add_input, act_type, act_alpha)

    def _check_subm_reuse_valid(self, inp: _Tensor, spatial_shape: Any, datas: Any) -> None:
        """Refuse to take another layer's pairs where they are not this layer's own."""
        sites, by_rows = self._sites(inp), self.trusts_edited_sites
        check_reuse(self._key_label(), self.geometry, self.subm, datas, sites, by_rows)

    def _check_inverse_reuse_valid(self, inp: _Tensor, spatial_shape: Any, datas: Any) -> None:
        """Refuse to undo another layer than that of the key."""
        check_inverse(
            self._key_label(), self.kernel_size, datas, self._sites(inp), self.trusts_edited_sites
        )

    @property
    def act_type(self) -> str:
        """The activation by our name; spconv's enum may be assigned."""
        return self._act_type

    @act_type.setter
    def act_type(self, value: object) -> None:
        self._act_type = activation_name(value)

    def _leave(self, pairs: KernelMap, inputs: Coordinates, outputs: Coordinates) -> IndiceData:
        return IndiceData.left(pairs, inputs, outputs, self.subm, self.algo)

    def _map(
        self, input: _Tensor, sites: Coordinates
    ) -> tuple[KernelMap, Coordinates, dict[str, _IndiceData]]:
        pairs, target, kept = super()._map(input, sites)
        if target.batch_size < input.batch_size:  # made of tables, which do not tell
            target = Coordinates(target.indices, target.spatial_shape, input.batch_size)
        return pairs, target, kept

    def _check_options(self) -> None:
        if self.subm:
            self.stride = [1] * self.ndim
        super()._check_options()


def _ask_hook(self: SparseConvolution, input: _Tensor, add_input: _Tensor | None = None) -> _Tensor:
    return self._conv_forward(
        self.training,
        input,
        self.weight,
        self.bias,
        add_input,
        name=self.name,
        sparse_unique_name=self._sparse_unique_name,
        act_type=self.act_type,
        act_alpha=self.act_alpha,
        act_beta=self.act_beta,
    )


SparseConvolutionBase = SparseConvolution


class SparseConv1d(_conv.SparseConv1d, SparseConvolution):
    """`sparse3d.nn.SparseConv1d`."""


class SparseConvTranspose1d(_conv.SparseConvTranspose1d, SparseConvolution):
    """`sparse3d.nn.SparseConvTranspose1d`."""


class SubMConv1d(_conv.SubMConv1d, SparseConvolution):
    """`sparse3d.nn.SubMConv1d`."""


class SparseInverseConv1d(_conv.SparseInverseConv1d, SparseConvolution):
    """`sparse3d.nn.SparseInverseConv1d`."""


class SparseConv2d(_conv.SparseConv2d, SparseConvolution):
    """`sparse3d.nn.SparseConv2d`."""


class SparseConvTranspose2d(_conv.SparseConvTranspose2d, SparseConvolution):
    """`sparse3d.nn.SparseConvTranspose2d`."""


class SubMConv2d(_conv.SubMConv2d, SparseConvolution):
    """`sparse3d.nn.SubMConv2d`."""


class SparseInverseConv2d(_conv.SparseInverseConv2d, SparseConvolution):
    """`sparse3d.nn.SparseInverseConv2d`."""


class SparseConv3d(_conv.SparseConv3d, SparseConvolution):
    """`sparse3d.nn.SparseConv3d`."""


class SparseConvTranspose3d(_conv.SparseConvTranspose3d, SparseConvolution):
    """`sparse3d.nn.SparseConvTranspose3d`."""


class SubMConv3d(_conv.SubMConv3d, SparseConvolution):
    """`sparse3d.nn.SubMConv3d`."""


class SparseInverseConv3d(_conv.SparseInverseConv3d, SparseConvolution):
    """`sparse3d.nn.SparseInverseConv3d`."""


class SparseConv4d(_conv.SparseConv4d, SparseConvolution):
    """`sparse3d.nn.SparseConv4d`."""


class SparseConvTranspose4d(_conv.SparseConvTranspose4d, SparseConvolution):
    """`sparse3d.nn.SparseConvTranspose4d`."""


class SubMConv4d(_conv.SubMConv4d, SparseConvolution):
    """`sparse3d.nn.SubMConv4d`."""


class SparseInverseConv4d(_conv.SparseInverseConv4d, SparseConvolution):
    """`sparse3d.nn.SparseInverseConv4d`."""


DEFAULT_SPARSE_CONV_TYPES: set[Any] = {
    kind for kind in list(globals().values()) if isinstance(kind, type) and hasattr(kind, "axes")
}
