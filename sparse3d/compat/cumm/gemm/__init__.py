"""`cumm.gemm`: names of algorithms and small helpers; kernels are refused when they are used."""

from . import algospec, codeops

__all__ = ["algospec", "codeops"]
