"""`flex_gemm.ops.spconv`: convolutions as functions, with their neighbour cache.

Coordinates are (batch, x, y, z), weights `[C_out, Kw, Kh, Kd, C_in]` over them.
"""

from __future__ import annotations

from typing import Any

import torch

from .... import _check
from ....geometry import Geometry, output_shape, submanifold_padding
from ....kernel_map import Coordinates, KernelMap
from ....ops.conv import conv

__all__ = [
    "ALGORITHM",
    "BACKEND",
    "HASHMAP_RATIO",
    "Algorithm",
    "Backend",
    "NeighborCache",
    "SparseConv3dNeighborCache",
    "SubMConv3dNeighborCache",
    "set_algorithm",
    "set_backend",
    "set_hashmap_ratio",
    "sparse_conv3d",
    "sparse_submanifold_conv3d",
]

Triple = tuple[int, int, int]


class Algorithm:
    """Accepted; the backend chooses."""

    EXPLICIT_GEMM = "explicit_gemm"
    IMPLICIT_GEMM = "implicit_gemm"
    IMPLICIT_GEMM_SPLITK = "implicit_gemm_splitk"
    MASKED_IMPLICIT_GEMM = "masked_implicit_gemm"
    MASKED_IMPLICIT_GEMM_SPLITK = "masked_implicit_gemm_splitk"


class Backend:
    """Accepted; the tensors' device chooses."""

    TRITON = "triton"
    CUDA = "cuda"
    TORCH = "torch"


ALGORITHM = Algorithm.MASKED_IMPLICIT_GEMM_SPLITK
HASHMAP_RATIO = 2.0
BACKEND = Backend.TRITON


def _one_of(kind: type, name: str, value: object) -> None:
    known = [v for k, v in vars(kind).items() if not k.startswith("_")]
    if value not in known:
        _check.fail(name, f"one of {known}", repr(value))


def set_algorithm(algorithm: str) -> None:
    """Kept in `ALGORITHM`, if it is one of the peer's; the backend chooses for itself."""
    global ALGORITHM  # noqa: PLW0603  (the peer's own)
    _one_of(Algorithm, "algorithm", algorithm)
    ALGORITHM = algorithm


def set_backend(backend: str) -> None:
    """Kept in `BACKEND`, if it is one of the peer's; the tensors' device chooses."""
    global BACKEND  # noqa: PLW0603
    _one_of(Backend, "backend", backend)
    BACKEND = backend


def set_hashmap_ratio(ratio: float) -> None:
    """Kept in `HASHMAP_RATIO`; nothing reads it."""
    global HASHMAP_RATIO  # noqa: PLW0603
    HASHMAP_RATIO = ratio


class NeighborCache:
    """The kernel map of a layer, to hand to layers of the same geometry on the same sites."""

    def __init__(self, pairs: KernelMap, sites: Coordinates, geometry: Geometry) -> None:
        self.pairs, self.sites, self.geometry = pairs, sites, geometry

    def fits(self, sites: Coordinates, geometry: Geometry) -> bool:
        """Whether geometry and sites are those it was made for."""
        mine = self.sites.indices
        same = mine is sites.indices or (
            mine.shape == sites.indices.shape and bool(torch.equal(mine, sites.indices))
        )
        return geometry == self.geometry and same and self.sites.is_unchanged()

    def __getitem__(self, name: str) -> Any:
        """`neighbor_map`: int32 [M, K], -1 for none."""
        if name == "neighbor_map":
            return self.pairs.neighbours()
        raise KeyError(name)


SubMConv3dNeighborCache = NeighborCache
SparseConv3dNeighborCache = NeighborCache


def check_sites(feats: torch.Tensor, coords: torch.Tensor, shape: tuple[int, ...]) -> Coordinates:
    """The sites of a layer's arguments."""
    _check.features("feats", feats)
    _check.coordinates("coords", coords)
    _check.same_rows("feats", len(feats), "coords", len(coords))
    if len(shape) != 5:
        _check.fail("shape", "(N, C, W, H, D)", tuple(shape))
    return Coordinates(coords, [int(n) for n in shape[2:]], int(shape[0]))


def _triple(name: str, value: Any) -> Triple:
    values = [int(v) for v in value] if hasattr(value, "__iter__") else [int(value)] * 3
    if len(values) != 3:
        _check.fail(name, "an integer or 3 integers", value)
    return values[0], values[1], values[2]


def _kernel(weight: torch.Tensor) -> Triple:
    if weight.ndim != 5:
        _check.fail("weight", "[C_out, Kw, Kh, Kd, C_in]", list(weight.shape))
    return int(weight.shape[1]), int(weight.shape[2]), int(weight.shape[3])


def sparse_submanifold_conv3d(
    feats: torch.Tensor,
    coords: torch.Tensor,
    shape: tuple[int, ...],
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    neighbor_cache: NeighborCache | None = None,
    dilation: Any = (1, 1, 1),
) -> tuple[torch.Tensor, NeighborCache]:
    """Convolve onto the sites themselves.

    Args:
        feats: [N, C_in].
        coords: int32 [N, 4], (batch, x, y, z).
        shape: (N, C, W, H, D).
        weight: [C_out, Kw, Kh, Kd, C_in], odd.
        bias: [C_out] or None.
        neighbor_cache: of an earlier layer of this geometry on these sites.
        dilation: one integer, or one an axis.

    Returns:
        [N, C_out], and the cache for the next layer.

    Raises:
        ValueError: if the cache is of another geometry or other sites.
    """
    sites, size, spread = (
        check_sites(feats, coords, shape),
        _kernel(weight),
        _triple("dilation", dilation),
    )
    geometry = Geometry(size, (1, 1, 1), submanifold_padding(size, spread), spread)
    if neighbor_cache is None:
        neighbor_cache = NeighborCache(sites.submanifold(size, spread), sites, geometry)
    elif not neighbor_cache.fits(sites, geometry):
        wanted = f"of {geometry} on these {len(sites)} sites"
        got = f"one of {neighbor_cache.geometry} on {len(neighbor_cache.sites)} sites"
        _check.fail("neighbor_cache", wanted, got, "pass None to make it anew")
    return conv(feats, weight, neighbor_cache.pairs, bias), neighbor_cache


def sparse_conv3d(
    feats: torch.Tensor,
    coords: torch.Tensor,
    shape: tuple[int, ...],
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    neighbor_cache: NeighborCache | None = None,
    out_coords: torch.Tensor | None = None,
    stride: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    dilation: Any = (1, 1, 1),
) -> tuple[torch.Tensor, torch.Tensor, NeighborCache]:
    """Convolve onto every site in the grid that an input reaches, or onto given ones.

    Args:
        feats: [N, C_in].
        coords: int32 [N, 4], (batch, x, y, z).
        shape: (N, C, W, H, D).
        weight: [C_out, Kw, Kh, Kd, C_in].
        bias: [C_out] or None.
        neighbor_cache: of an earlier layer of this geometry on these sites.
        out_coords: int32 [M, 4], or None.
        stride: one integer, or one an axis.
        padding: likewise.
        dilation: likewise.

    Returns:
        [M, C_out], the sites int32 [M, 4], and the cache.
    """
    sites = check_sites(feats, coords, shape)
    steps, shifts = _triple("stride", stride), _triple("padding", padding)
    geometry = Geometry(_kernel(weight), steps, shifts, _triple("dilation", dilation))
    if neighbor_cache is None or not neighbor_cache.fits(sites, geometry):
        if out_coords is not None:
            target = Coordinates(out_coords, None, sites.batch_size)
            pairs = sites.given(target, geometry)
        else:
            assert sites.spatial_shape is not None
            grid = output_shape(sites.spatial_shape, geometry)
            _check.grid("sparse_conv3d", grid, sites.spatial_shape)
            pairs, _ = sites.footprint(geometry, grid)
        neighbor_cache = NeighborCache(pairs, sites, geometry)
    pairs = neighbor_cache.pairs
    return conv(feats, weight, pairs, bias), pairs.out_indices, neighbor_cache
