"""`spconv.pytorch.functional`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....nn import functional as _functional
from ....nn.functional import *  # noqa: F403
from ....nn.functional import as_function
from ....ops.keys import cell_numbers
from . import ops
from .core import SparseConvTensor
from .hash import HashTable

__all__ = ["HashTable", "SparseConvTensor", "ops"]
__all__ += _functional.__all__


def indice_maxpool(  # type: ignore[no-redef]
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a pair table, and 0; see `ops`."""
    return ops.indice_maxpool(features, indice_pairs, indice_pair_num, num_activate_out)


def indice_maxpool_implicit_gemm(  # type: ignore[no-redef]
    features: torch.Tensor,
    indice_pairs_fwd: torch.Tensor,
    indice_pairs_bwd: torch.Tensor | None,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a neighbour table, and 0; see `ops`."""
    return ops.indice_maxpool_implicit_gemm(features, indice_pairs_fwd, num_activate_out)


SparseMaxPoolFunction = as_function("SparseMaxPoolFunction", indice_maxpool)
SparseMaxPoolImplicitGemmFunction = as_function(
    "SparseMaxPoolImplicitGemmFunction", indice_maxpool_implicit_gemm
)


def _indice_to_scalar(indices: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Row-major cell numbers of integer rows [N, D] in a box [D]."""
    return cell_numbers(indices, shape)
