"""`spconv.pytorch.tables`."""

from ....nn import tables as _tables
from ....nn.tables import *  # noqa: F403
from .core import SparseConvTensor
from .modules import SparseModule

__all__ = ["SparseConvTensor", "SparseModule"]
__all__ += _tables.__all__
