"""Sparse tensors: the class, what layers leave on it, and functions of several of them."""

from .indice_data import IndiceData
from .joined import add, cat, coalesce, collate, decompose
from .sparse_conv_tensor import SparseConvTensor

__all__ = ["IndiceData", "SparseConvTensor", "add", "cat", "coalesce", "collate", "decompose"]
