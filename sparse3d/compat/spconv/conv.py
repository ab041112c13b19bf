"""`spconv.conv` of 1.x, whose layers take `use_hash`."""

from ._legacy import (
    SparseConv2d,
    SparseConv3d,
    SparseConv4d,
    SparseConvTensor,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SubMConv2d,
    SubMConv3d,
    SubMConv4d,
)
from .pytorch import functional as Fsp
from .pytorch import ops
from .pytorch.conv import (
    SparseConv1d,
    SparseConvolution,
    SparseInverseConv1d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SparseInverseConv4d,
    SubMConv1d,
)
from .pytorch.modules import SparseModule

__all__ = [
    "Fsp",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseModule",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
    "ops",
]
