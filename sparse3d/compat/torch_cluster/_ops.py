"""`torch.ops.torch_cluster`: the peer's schemas over our operators."""

from __future__ import annotations

import torch

from ...pointops import flat, graph, grid

_SCHEMAS = (
    "fps(Tensor src, Tensor ptr, Tensor ratio, bool random_start) -> Tensor",
    "knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers)"
    " -> Tensor",
    "radius(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, float r, int max_num_neighbors,"
    " int num_workers, bool ignore_same_index=False) -> Tensor",
    "nearest(Tensor x, Tensor y, Tensor ptr_x, Tensor ptr_y) -> Tensor",
    "grid(Tensor pos, Tensor size, Tensor? start, Tensor? end) -> Tensor",
    "graclus(Tensor rowptr, Tensor col, Tensor? weight) -> Tensor",
    "random_walk(Tensor rowptr, Tensor col, Tensor start, int walk_length, float p, float q)"
    " -> (Tensor, Tensor)",
    "cuda_version() -> int",
)


def fps(
    src: torch.Tensor, ptr: torch.Tensor, ratio: torch.Tensor | float, random_start: bool
) -> torch.Tensor:
    """`fps` of clouds given by bounds."""
    return flat.fps(src, ratio=ratio, random_start=random_start, ptr=ptr, stay=True)


def knn(
    x: torch.Tensor,
    y: torch.Tensor,
    ptr_x: torch.Tensor | None,
    ptr_y: torch.Tensor | None,
    k: int,
    cosine: bool = False,
    num_workers: int = 1,
) -> torch.Tensor:
    """`knn` of clouds given by bounds."""
    return flat.knn_edges(*flat.pointed(x, y, ptr_x, ptr_y), k, cosine)


def radius(
    x: torch.Tensor,
    y: torch.Tensor,
    ptr_x: torch.Tensor | None,
    ptr_y: torch.Tensor | None,
    r: float,
    max_num_neighbors: int,
    num_workers: int = 1,
    ignore_same_index: bool = False,
) -> torch.Tensor:
    """`radius` of clouds given by bounds."""
    rows = flat.pointed(x, y, ptr_x, ptr_y)
    return flat.radius_edges(*rows, r, max_num_neighbors, ignore_same_index)


def nearest(
    x: torch.Tensor, y: torch.Tensor, ptr_x: torch.Tensor, ptr_y: torch.Tensor
) -> torch.Tensor:
    """`nearest` of clouds given by bounds."""
    y, x, clouds = flat.pointed(y, x, ptr_y, ptr_x)
    return flat.nearest_rows(x, y, clouds)


def graclus(
    rowptr: torch.Tensor, col: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """`graclus_cluster` of a graph in compressed rows."""
    return graph.graclus_csr(rowptr, col, weight)


def random_walk(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    start: torch.Tensor,
    walk_length: int,
    p: float,
    q: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`random_walk` on a graph in compressed rows."""
    return graph.random_walk_csr(rowptr, col, start, walk_length, p, q)


def _cuda_version() -> int:
    return -1


_RUN = {
    "fps": fps,
    "knn": knn,
    "radius": radius,
    "nearest": nearest,
    "grid": grid.grid_cluster,
    "graclus": graclus,
    "random_walk": random_walk,
    "cuda_version": _cuda_version,
}
_KEY = "CompositeExplicitAutograd"
_libraries: list[torch.library.Library] = []


def _define() -> None:
    if hasattr(torch.ops.torch_cluster, "knn"):
        return  # the real library is loaded: its operators stay
    library = torch.library.Library("torch_cluster", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        name = library.define(schema)  # type: ignore[no-untyped-call]
        library.impl(name, _RUN[name], _KEY)  # type: ignore[no-untyped-call]
    _libraries.append(library)


_define()
