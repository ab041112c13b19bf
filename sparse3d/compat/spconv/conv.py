"""`spconv.conv` of 1.x: the names of 2.x's, with layers that take `use_hash`."""

from . import _legacy, ops
from . import functional as Fsp
from .pytorch import conv as _conv

__all__ = list(_conv.__all__)
_OURS = {"Fsp": Fsp, "ops": ops, "SparseConvolutionBase": _legacy.SparseConvolution}
_OURS |= {name: getattr(_legacy, name) for name in _legacy.__all__}
globals().update({name: _OURS.get(name, getattr(_conv, name)) for name in __all__})
