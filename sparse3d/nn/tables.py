"""Tables: run layers side by side, then join or add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from .. import _check
from ..tensor import SparseConvTensor, add, cat
from .modules import SparseModule

__all__ = ["AddTable", "AddTableMisaligned", "ConcatTable", "JoinTable"]


class _Table(SparseModule):
    def input_spatial_size(self, out_size: Any) -> Any:
        return out_size


class JoinTable(_Table):
    """Join the channels of tensors on the same sites."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        _same_rows("JoinTable", input)
        return cat(*input)


class AddTable(_Table):
    """Add tensors on the same sites."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        _same_rows("AddTable", input)
        total = input[0]
        for other in input[1:]:
            total = total + other
        return total


class AddTableMisaligned(_Table):
    """Add tensors over the union of their sites."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        return add(*input)


class ConcatTable(_Table):
    """Run every child on the same input and list the outputs."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        for module in modules:
            self.add(module)

    def add(self, module: nn.Module) -> ConcatTable:
        """Append a child; returns self."""
        self.add_module(str(len(self._modules)), module)
        return self

    def forward(self, input: Any) -> list[Any]:
        return [module(input) for module in self._modules.values() if module is not None]


def _same_rows(table: str, tensors: Sequence[SparseConvTensor]) -> None:
    if not tensors:
        _check.fail(f"{table}: input", "at least one tensor", "none")
    for other in tensors[1:]:
        way_out = "use sparse3d.add or sparse3d.cat for different sites"
        _check.same_rows(
            f"{table}: tensor", len(other), "the first tensor", len(tensors[0]), way_out
        )
