"""Functional forms on sparse tensors (spconv's `functional`, usually imported as Fsp)."""

from __future__ import annotations

from ..tensor import SparseConvTensor, add

__all__ = ["sparse_add", "sparse_add_hash_based"]


def sparse_add(*tens: SparseConvTensor) -> SparseConvTensor:
    """Sum over the union of the sites, rows by batch id, then first occurrence.

    Args:
        *tens: of one grid, batch size and channel count.
    """
    return add(*tens)


def sparse_add_hash_based(*tens: SparseConvTensor) -> SparseConvTensor:
    """The same as `sparse_add`; spconv has two implementations."""
    return add(*tens)
