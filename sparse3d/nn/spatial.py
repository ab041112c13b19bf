"""spconv's `spatial`."""

from __future__ import annotations

from ..tensor import SparseConvTensor, coalesce
from .modules import SparseModule

__all__ = ["RemoveDuplicate"]


class RemoveDuplicate(SparseModule):
    """Merge rows that share a site.

    Args:
        reduce: "sum", "mean" or "max".
        name: shown in error messages.
    """

    def __init__(self, reduce: str = "sum", name: str | None = None) -> None:
        super().__init__(name=name)
        self.reduce = reduce

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        return coalesce(x, self.reduce)
