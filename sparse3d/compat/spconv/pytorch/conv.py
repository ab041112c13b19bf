"""`spconv.pytorch.conv`."""

from __future__ import annotations

from typing import Any

from ....kernel_map import Coordinates, KernelMap
from ....nn import conv as _conv
from ....nn._convolution import activation_name
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
