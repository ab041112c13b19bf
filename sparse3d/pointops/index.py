"""A spatial index of a cloud: built once, searched many times, same results as brute force.

Meaning: the index holds the reference points in an order that lets a search skip most of them. It
changes speed only: `knn` and `ball_query` with an index return bit for bit what they return
without one. Backends that search by brute force keep an empty index.

Shapes: `spatial_index(reference [N, D], clouds [B, 5]) -> opaque uint8 tensor` on the points'
device (layout private to the backend; empty where the backend has none or would not use one).
Determinism: the same points give the same bytes, whatever the thread count.
Gradient: none through the index; distances returned by a search carry their gradient as ever.
Errors: a cloud without points; one changed in place after the index was built.

Example:
    >>> import torch
    >>> from sparse3d.pointops import SpatialIndex
    >>> points = torch.tensor([[0.0, 0, 0], [1, 0, 0], [4, 0, 0]])
    >>> distance, neighbour = SpatialIndex(points).knn(torch.tensor([[0.9, 0, 0]]), 2)
    >>> neighbour.tolist()
    [[1, 0]]
"""

from __future__ import annotations

import torch

from sparse3d._check import fail, tensor
from sparse3d._registry import Op

from . import _clouds, _inputs
from .ball_query import ball_search
from .knn import LARGEST_K, knn_search


def _reference(reference: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    """The reference searches by brute force and keeps no index."""
    return reference.new_empty(0, dtype=torch.uint8)


def _fake(reference: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return reference.new_empty(size, dtype=torch.uint8)


spatial_index = Op(
    "spatial_index(Tensor reference, Tensor clouds) -> Tensor", reference=_reference, fake=_fake
)

_BACKENDS = ("auto", "scan", "bvh")


def _check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        fail("backend", f"one of {_BACKENDS}", repr(backend))


class SpatialIndex:
    """Reusable exact search in one cloud.

    Args:
        points: [N, 3] floating points. Borrowed, not copied: changing them in place afterwards
            makes the next search a ValueError. Tensors made in inference mode, which count no
            changes, are copied.
        backend: `auto` and `bvh` build the backend's index, `scan` always searches by brute force.
        origin: accepted for code written for grid indices; results never depend on them.
        cell_size: as `origin`.
    """

    def __init__(
        self,
        points: torch.Tensor,
        *,
        backend: str = "auto",
        origin: torch.Tensor | None = None,
        cell_size: float | None = None,
    ) -> None:
        _inputs.points("points", points, 2, 3)
        _inputs.peopled("points", points[None])
        _check_backend(backend)
        if origin is not None:
            shape, dtype = tensor("origin", origin).shape, origin.dtype
            if shape != (3,) or dtype != points.dtype:
                fail("origin", f"[3] of {points.dtype}", f"{list(shape)} of {dtype}")
        if cell_size is not None and not 0 < _inputs.number("cell_size", cell_size) < float("inf"):
            fail("cell_size", "finite and > 0", cell_size)
        if points.is_inference():
            with torch.inference_mode(False):
                points = points.clone()
        self.points = points
        self.backend = backend
        self.origin = origin
        self.cell_size = cell_size
        self._version = points._version
        self._computed = _inputs.computed(points.detach())
        self._index: torch.Tensor | None = None

    def __len__(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    def knn(
        self,
        query: torch.Tensor,
        k: int,
        *,
        backend: str | None = None,
        parallel_microtrees: bool | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Euclidean distances [Q, k] and int64 indices [Q, k], as `pointops.knn` gives them.

        `backend` overrides the constructor's for this call; `parallel_microtrees` is accepted for
        code written for mps-pointops and changes nothing.
        """
        self._check(query)
        _inputs.count("k", k, 0)
        _inputs.count("k", k, 0, min(len(self), LARGEST_K), "the cloud has fewer points")
        clouds, index = self._prepare(query, backend)
        found: tuple[torch.Tensor, torch.Tensor] = knn_search(
            _inputs.computed(query.detach()), self._computed, clouds, index, k, "euclidean"
        )
        return found

    def ball_query(
        self, query: torch.Tensor, radius: float, K: int, *, backend: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Squared distances and int64 indices [Q, K], as `pointops.ball_query` gives them."""
        self._check(query)
        square = _inputs.squared_radius("radius", radius, query.dtype, flat=False)
        _inputs.count("K", K, 0)
        clouds, index = self._prepare(query, backend)
        found: tuple[torch.Tensor, torch.Tensor] = ball_search(
            _inputs.computed(query), _inputs.computed(self.points), clouds, index, square, K, False
        )
        return found

    def _check(self, query: torch.Tensor) -> None:
        _inputs.points("query", query, 2, 3)
        _inputs.alike("query", query, "points", self.points)
        if self.points._version != self._version:
            fail(
                "points",
                "unchanged since the index was built",
                f"version {self.points._version} after {self._version}",
                "build a new SpatialIndex",
            )

    def _prepare(
        self, query: torch.Tensor, backend: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        clouds = _clouds.flat(
            torch.tensor([0, query.shape[0]]), torch.tensor([0, self.points.shape[0]])
        )
        if backend is not None:
            _check_backend(backend)
        if (backend or self.backend) == "scan":
            return clouds, self.points.new_empty(0, dtype=torch.uint8)
        if self._index is None:
            self._index = spatial_index(self._computed, clouds)
        return clouds, self._index
