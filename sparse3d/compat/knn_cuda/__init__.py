"""Stand-in for KNN_CUDA 0.2: Euclidean distances, 0-based int64 indices, on any device.

| name | status | difference |
|---|---|---|
| KNN, knn | same | float64 stays float64; k > N is a ValueError |
| load_cpp_ext | same | nothing is compiled |
"""

from __future__ import annotations

import torch

from ...pointops import knn as _knn

__version__ = "0.2"

__all__ = ["KNN", "__version__", "knn", "load_cpp_ext"]


def knn(ref: torch.Tensor, query: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One cloud, coordinates first: (D, N), (D, M) -> distances and indices (k, M)."""
    distances, indices = _knn(query.t()[None], ref.t()[None], k)
    return distances[0].t().contiguous(), indices[0].t().contiguous()


class KNN(torch.nn.Module):
    """k nearest neighbours of a batch.

    Args:
        k: neighbours.
        transpose_mode: True for clouds (B, N, D) and results (B, M, k); False for (B, D, N) and
            (B, k, M).
    """

    def __init__(self, k: int, transpose_mode: bool = False) -> None:
        super().__init__()
        self.k = k
        self._t = transpose_mode

    @torch.no_grad()
    def forward(self, ref: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Distances and indices of each query's neighbours, ascending."""
        if self._t:
            return _knn(query, ref, self.k)
        distances, indices = _knn(query.transpose(1, 2), ref.transpose(1, 2), self.k)
        return distances.transpose(1, 2).contiguous(), indices.transpose(1, 2).contiguous()


class _Extension:
    """What the peer's extension `knn` holds."""

    @staticmethod
    def knn(ref: torch.Tensor, query: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`knn` whose indices count from 1."""
        distances, indices = knn(ref, query, k)
        numbers = torch.arange(1, ref.shape[1] + 1, device=indices.device)
        return distances, numbers[indices]


def load_cpp_ext(ext_name: str) -> _Extension:
    """The extension that the peer compiles, with nothing to compile: `knn` from 1.

    Raises:
        ValueError: if `ext_name` is not "knn".
    """
    if ext_name != "knn":
        raise ValueError(f"ext_name must be 'knn', got {ext_name!r}")
    return _Extension()
