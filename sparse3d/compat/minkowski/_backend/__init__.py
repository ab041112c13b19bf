"""Stand-in for `MinkowskiEngineBackend`."""

from . import _C

__all__ = ["_C"]
