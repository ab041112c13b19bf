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
    "SparseConv3dFunction",
    "SparseConv3dNeighborCache",
    "SubMConv3dFunction",
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
        """`neighbor_map`: int64 [M, K], 0xffffffff for none."""
        if name == "neighbor_map":
            return self.pairs.neighbours().long() & 0xFFFFFFFF
        raise KeyError(name)

    @property
    def out_coords(self) -> torch.Tensor:
        """The layer's sites, int32 [M, 4]."""
        return self.pairs.out_indices


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


def _submanifold(size: Triple, dilation: Any) -> Geometry:
    spread = _triple("dilation", dilation)
    return Geometry(size, (1, 1, 1), submanifold_padding(size, spread), spread)


def _submanifold_cache(sites: Coordinates, geometry: Geometry) -> NeighborCache:
    pairs = sites.submanifold(geometry.kernel_size, geometry.dilation)
    return NeighborCache(pairs, sites, geometry)


def _strided(size: Triple, stride: Any, padding: Any, dilation: Any) -> Geometry:
    steps, shifts = _triple("stride", stride), _triple("padding", padding)
    return Geometry(size, steps, shifts, _triple("dilation", dilation))


def _strided_cache(
    sites: Coordinates, geometry: Geometry, out_coords: torch.Tensor | None
) -> NeighborCache:
    """Onto given sites, or onto every site in the grid that an input reaches."""
    if out_coords is not None:
        pairs = sites.given(Coordinates(out_coords, None, sites.batch_size), geometry)
    else:
        assert sites.spatial_shape is not None
        grid = output_shape(sites.spatial_shape, geometry)
        _check.grid("sparse_conv3d", grid, sites.spatial_shape)
        pairs, _ = sites.footprint(geometry, grid)
    return NeighborCache(pairs, sites, geometry)


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
    sites, geometry = check_sites(feats, coords, shape), _submanifold(_kernel(weight), dilation)
    if neighbor_cache is None:
        neighbor_cache = _submanifold_cache(sites, geometry)
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
    geometry = _strided(_kernel(weight), stride, padding, dilation)
    if neighbor_cache is None or not neighbor_cache.fits(sites, geometry):
        neighbor_cache = _strided_cache(sites, geometry, out_coords)
    pairs = neighbor_cache.pairs
    return conv(feats, weight, pairs, bias), pairs.out_indices, neighbor_cache


def _gradients(
    grad_output: torch.Tensor,
    feats: torch.Tensor,
    neighbor_cache: NeighborCache,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Of features, weight and bias; None for those that need none."""
    given = (feats, weight, bias)
    with torch.enable_grad():
        mine = [
            None if value is None else value.detach().requires_grad_(value.requires_grad)
            for value in given
        ]
        out = conv(mine[0], mine[1], neighbor_cache.pairs, mine[2])  # type: ignore[arg-type]
    wanted = [value for value in mine if value is not None and value.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad_output))
    return tuple(
        next(found) if value is not None and value.requires_grad else None for value in mine
    )


def _forward(
    feats: torch.Tensor,
    neighbor_cache: NeighborCache,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    return conv(feats, weight, neighbor_cache.pairs, bias)


class SubMConv3dFunction:
    """The parts of `sparse_submanifold_conv3d`, as FlexGEMM's own tests call them."""

    apply = staticmethod(sparse_submanifold_conv3d)
    _sparse_submanifold_conv_forward = staticmethod(_forward)
    _sparse_submanifold_conv_backward = staticmethod(_gradients)

    @staticmethod
    def _compute_neighbor_cache(
        coords: torch.Tensor,
        shape: tuple[int, ...],
        kernel_size: Triple,
        dilation: Any,
        needs_grad: bool = True,
    ) -> NeighborCache:
        sites = check_sites(coords.new_zeros((len(coords), 1)).float(), coords, shape)
        return _submanifold_cache(sites, _submanifold(kernel_size, dilation))


class SparseConv3dFunction:
    """The parts of `sparse_conv3d`, as FlexGEMM's own tests call them."""

    apply = staticmethod(sparse_conv3d)
    _sparse_conv_forward = staticmethod(_forward)
    _sparse_conv_backward = staticmethod(_gradients)

    @staticmethod
    def _compute_neighbor_cache(coords: torch.Tensor, *rest: Any) -> NeighborCache:
        """Of (coords, shape, kernel_size, stride, padding, dilation, needs_grad); later versions
        have the output's sites before `shape`."""
        given = rest[0] if isinstance(rest[0], torch.Tensor) else None
        shape, size, stride, padding, dilation = rest[given is not None :][:5]
        sites = check_sites(coords.new_zeros((len(coords), 1)).float(), coords, shape)
        return _strided_cache(sites, _strided(size, stride, padding, dilation), given)

    @staticmethod
    def _get_output_coords(
        coords: torch.Tensor,
        shape: tuple[int, ...],
        kernel_size: Triple,
        stride: Any,
        padding: Any,
        dilation: Any,
    ) -> torch.Tensor:
        rest = (shape, kernel_size, stride, padding, dilation)
        return SparseConv3dFunction._compute_neighbor_cache(coords, *rest).out_coords
