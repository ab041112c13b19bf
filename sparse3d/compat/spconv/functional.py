"""`spconv.functional` of 1.x; tables and kernels are those of `spconv.ops`."""

from __future__ import annotations

from functools import partial

import torch

from ...nn.functional import as_function
from . import ops
from .ops import indice_maxpool

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


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    algo: object = None,
    *,
    inverse: bool = False,
) -> torch.Tensor:
    """Convolve over a pair table; `algo` is accepted."""
    return ops.indice_conv(
        features, filters, indice_pairs, indice_pair_num, num_activate_out, inverse
    )


indice_subm_conv = indice_conv  # tables of 1.x count every pair
indice_inverse_conv = partial(indice_conv, inverse=True)

SparseConvFunction = as_function("SparseConvFunction", indice_conv)
SparseInverseConvFunction = as_function("SparseInverseConvFunction", indice_inverse_conv)
SubMConvFunction = as_function("SubMConvFunction", indice_subm_conv)
SparseMaxPoolFunction = as_function("SparseMaxPoolFunction", indice_maxpool)
