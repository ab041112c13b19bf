"""`spconv.conv` of 1.x: the names of 2.x's, with layers that take `use_hash`."""

from . import _legacy
from .pytorch import conv as _conv

__all__ = list(_conv.__all__)
globals().update(
    {name: getattr(_legacy if name in _legacy.__all__ else _conv, name) for name in __all__}
)
