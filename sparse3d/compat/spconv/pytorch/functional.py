"""`spconv.pytorch.functional`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....nn import functional as _functional
from ....nn.functional import *  # noqa: F403
from . import ops
from .core import SparseConvTensor
from .hash import HashTable

__all__ = ["HashTable", "SparseConvTensor", "ops"]
__all__ += _functional.__all__


def _indice_to_scalar(indices: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Row-major cell numbers of integer rows [N, D] in a box [D]."""
    number = indices[:, 0]
    for column, size in zip(indices.T[1:], shape[1:], strict=True):
        number = number * size + column
    return number
