"""Sparse matrix times dense rows, in fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ops.segment import reduce_segments, sparse_product, spread_segments

__all__ = ["EPS", "MinkowskiSPMMAverageFunction", "MinkowskiSPMMFunction", "spmm", "spmm_average"]

EPS = 1e-10


def spmm(
    rows: torch.Tensor,
    cols: torch.Tensor,
    vals: torch.Tensor,
    size: Sequence[int],
    mat: torch.Tensor,
    is_sorted: bool = False,
    cuda_spmm_alg: int = 1,
) -> torch.Tensor:
    """`A @ mat` for A with `A[rows[i], cols[i]] += vals[i]` of shape `size`; differentiable."""
    return sparse_product(rows.long(), cols.long(), vals, int(size[0]), mat)


def spmm_average(
    rows: torch.Tensor,
    cols: torch.Tensor,
    size: Sequence[int],
    mat: torch.Tensor,
    cuda_spmm_alg: int = 1,
) -> torch.Tensor:
    """`A @ mat` with A's rows averaging what they list; differentiable."""
    return reduce_segments(spread_segments(mat, cols.long()), rows.long(), int(size[0]), "mean")


class MinkowskiSPMMFunction:
    """`apply` is `spmm`."""

    @staticmethod
    def apply(
        rows: torch.Tensor,
        cols: torch.Tensor,
        vals: torch.Tensor,
        size: Sequence[int],
        mat: torch.Tensor,
        cuda_spmm_alg: int = 1,
    ) -> torch.Tensor:
        return spmm(rows, cols, vals, size, mat)


class MinkowskiSPMMAverageFunction:
    """`apply` is `spmm_average`."""

    @staticmethod
    def apply(
        rows: torch.Tensor,
        cols: torch.Tensor,
        size: Sequence[int],
        mat: torch.Tensor,
        cuda_spmm_alg: int = 1,
    ) -> torch.Tensor:
        return spmm_average(rows, cols, size, mat)
