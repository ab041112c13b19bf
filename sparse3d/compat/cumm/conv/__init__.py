"""`cumm.conv`: the enumerations; kernels are refused when they are used."""

from . import bases

__all__ = ["bases"]
