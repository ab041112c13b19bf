"""`spconv.pytorch.ops`: maxima start from 0, and every input that equals one takes its gradient."""

from __future__ import annotations

from typing import Any

import torch

from ....nn import ops as _ops
from ....nn.ops import *  # noqa: F403
from ...cumm import tensorview as tv

__all__: list[str] = ["tv"]
__all__ += _ops.__all__

AS_THE_PEER: dict[str, Any] = {"floor_at_zero": True, "ties": "all"}


def indice_maxpool(  # type: ignore[no-redef]
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a pair table, and 0; differentiable."""
    return _ops.indice_maxpool(
        features, indice_pairs, indice_pair_num, num_activate_out, **AS_THE_PEER
    )


def indice_maxpool_backward(  # type: ignore[no-redef]
    features: torch.Tensor,
    out_features: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
) -> torch.Tensor:
    """Gradient of `indice_maxpool` to features."""
    return _ops.indice_maxpool_backward(
        features, out_features, out_bp, indice_pairs, indice_pair_num, **AS_THE_PEER
    )


def indice_maxpool_implicit_gemm(  # type: ignore[no-redef]
    features: torch.Tensor, indice_pairs: torch.Tensor, num_activate_out: int
) -> torch.Tensor:
    """Maximum over a neighbour table [K, M], and 0; differentiable."""
    return _ops.indice_maxpool_implicit_gemm(
        features, indice_pairs, num_activate_out, **AS_THE_PEER
    )


def indice_maxpool_implicit_gemm_backward(  # type: ignore[no-redef]
    features: torch.Tensor,
    out_features: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
) -> torch.Tensor:
    """Gradient to features; `indice_pairs` is the backward table [K, N]."""
    return _ops.indice_maxpool_implicit_gemm_backward(
        features, out_features, out_bp, indice_pairs, **AS_THE_PEER
    )
