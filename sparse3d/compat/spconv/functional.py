"""`spconv.functional` of 1.x; tables and kernels are those of `spconv.ops`."""

from __future__ import annotations

import torch

from ...nn.functional import as_function
from . import ops
from .ops import indice_conv, indice_maxpool

__all__ = [
    "SparseConvFunction",
    "SparseInverseConvFunction",
    "SparseMaxPoolFunction",
    "SubMConvFunction",
    "indice_conv",
    "indice_inverse_conv",
    "indice_maxpool",
    "indice_subm_conv",
    "ops",
]

indice_subm_conv = indice_conv  # tables of 1.x count every pair


def indice_inverse_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """`indice_conv` with the table's roles swapped."""
    return indice_conv(features, filters, indice_pairs, indice_pair_num, num_activate_out, True)


SparseConvFunction = as_function("SparseConvFunction", indice_conv)
SparseInverseConvFunction = as_function("SparseInverseConvFunction", indice_inverse_conv)
SubMConvFunction = as_function("SubMConvFunction", indice_subm_conv)
SparseMaxPoolFunction = as_function("SparseMaxPoolFunction", indice_maxpool)
