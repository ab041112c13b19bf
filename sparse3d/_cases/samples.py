"""A few calls of every op that has kernels, for the checks that treat all ops alike.

Maps, rows and weights that an op reads are the reference's, so that a fault shows in the op that
has it; tables, plans and indices, which are a backend's own, are made by the backend in force.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from .. import _registry, ops
from ..ops import conv, coordinates, kernel_map, pool, voxelize
from . import clouds, points

__all__ = [
    "EMPTY",
    "FLOATING",
    "OPAQUE",
    "SMALL",
    "WIDE",
    "Size",
    "all_ops",
    "engine_ops",
    "map_calls",
    "samples",
]

Args = tuple[Any, ...]
To = Callable[[torch.Tensor], torch.Tensor]

FLOATING = {
    "conv_forward", "conv_input_grad", "conv_weight_grad", "conv_fused", "pool_sum", "pool_max",
    "pool_max_grad", "segment_sum", "segment_max", "interpolate", "interpolate_grad",
    "dense_scatter", "dense_gather", "batch_norm_train", "batch_norm_grad", "linear_rows",
    "linear_weight_grad",
    "batch_norm_relu_train", "batch_norm_relu_grad", "batch_norm_relu_again",
}  # fmt: skip
"""Ops of the engine whose features may have any floating dtype."""

OPAQUE = {"coordinate_table", "conv_plan", "spatial_index"}
"""Their results are a backend's own layout."""


@dataclass(frozen=True)
class Size:
    """How large a sample is. ``wide`` passes every chunk and tile size; ``empty`` has no rows."""

    name: str
    rows: int
    c_in: int
    c_out: int
    groups: int = 1


EMPTY, SMALL, WIDE = Size("empty", 0, 3, 4), Size("small", 40, 3, 4), Size("wide", 1500, 24, 40)


def engine_ops() -> dict[str, _registry.Op]:
    """Every op that a module of ``sparse3d.ops`` registers, by name."""
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return {
        name: op
        for name, op in sorted(_registry._ops.items())
        if op.reference.__module__.startswith(f"{ops.__name__}.")
    }


def all_ops() -> dict[str, _registry.Op]:
    """The engine's, and the point ops that GPUs have kernels for."""
    return engine_ops() | {op.name: op for op in points.OPS}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normal values rounded to ``dtype``."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)


def cloud(size: Size) -> torch.Tensor:
    """A cloud of two samples, sparse enough to have edges and dense enough to have neighbours."""
    if size.rows <= 40:
        return torch.from_numpy(clouds.cloud("interleaved", 3).copy())[: size.rows]
    rng = np.random.default_rng(4)
    cells = np.stack(np.unravel_index(rng.permutation(24**3)[: size.rows], (24,) * 3), 1)
    batch = rng.integers(0, 2, (size.rows, 1))
    return torch.from_numpy(np.concatenate([batch, cells], axis=1).astype(np.int32))


def _table(coords: torch.Tensor) -> torch.Tensor:
    table: torch.Tensor = coordinates.coordinate_table(coords)
    return table


@cache
def _maps(size: Size) -> list[tuple[Args, int, int, bool]]:
    """Pairs, rows in, rows out, mirrored: of a submanifold and of a strided layer."""
    coords, rows = cloud(size), size.rows
    with _registry.force("reference"):
        subm = kernel_map.kernel_map_submanifold(coords, _table(coords), [3] * 3, [1] * 3)
        out, *down = kernel_map.kernel_map_footprint(
            coords, [3] * 3, [2] * 3, [1] * 3, [1] * 3, [], False
        )
    return [(tuple(subm), rows, rows, True), (tuple(down), rows, len(out), False)]


def _moved(pairs: Args, to: To) -> Args:
    """Pairs where a backend reads them: splits stay on the CPU."""
    src, dst, splits = pairs
    return to(src), to(dst), splits


def _conv(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    return [_convolution(name, size, dtype, to, *found) for found in _maps(size)]


def _convolution(
    name: str,
    size: Size,
    dtype: torch.dtype,
    to: To,
    pairs: Args,
    num_in: int,
    num_out: int,
    mirrored: bool,
) -> Args:
    src, dst, splits = pairs = _moved(pairs, to)
    sizes, groups = (num_in, num_out), size.groups
    if name == "conv_plan":
        return *pairs, *sizes, mirrored
    plan = list(conv.conv_plan(*pairs, *sizes, mirrored))
    back = list(conv.conv_plan(dst, src, splits, *sizes[::-1], mirrored))
    x = to(random(num_in, size.c_in, dtype=dtype, seed=1))
    w = to(random(size.c_out, splits.numel() - 1, size.c_in // groups, dtype=dtype, seed=2))
    g = to(random(num_out, size.c_out, dtype=dtype, seed=3))
    if name != "conv_fused":
        return {
            "conv_forward": (x, w, *pairs, plan, back, num_out, groups),
            "conv_input_grad": (g, w, *pairs, back, plan, num_in, groups),
            "conv_weight_grad": (x, g, *pairs, plan, back, groups),
        }[name]
    bias = to(random(size.c_out, dtype=dtype, seed=4))
    residual = to(random(num_out, size.c_out, dtype=dtype, seed=5))
    scale = to(random(size.c_out, seed=6)) if mirrored else None
    return x, w, *pairs, plan, num_out, groups, bias, residual, "relu", 0.0, scale


def _pool(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    return [_pooling(name, size, dtype, to, *found[:3]) for found in _maps(size)]


def _pooling(
    name: str, size: Size, dtype: torch.dtype, to: To, pairs: Args, num_in: int, num_out: int
) -> Args:
    x = random(num_in, size.c_in, dtype=dtype, seed=1)
    if name != "pool_max_grad":
        return to(x), *_moved(pairs, to), num_out
    with _registry.force("reference"):
        arg = pool.pool_max(x, *pairs, num_out)[1]
    grad = random(num_out, size.c_in, dtype=dtype, seed=2)
    return to(grad), to(arg), *_moved(pairs, to), num_in


def _coordinates(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    coords = cloud(size)
    there = to(coords)
    if name == "coordinate_lookup":
        return [(there, _table(there), to(coords.flip(0)))]
    if name == "coordinate_unique":
        return [(there,), (to(torch.cat([coords, coords[: size.rows // 3]])),)]
    return [(there,)]


def _kernel_map(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    coords, numbers = cloud(size), ([3] * 3, [2] * 3, [1] * 3, [1] * 3)
    some, twice = coords.clone(), torch.cat([coords, coords[: size.rows // 3]])
    some[::7, 0] = -1  # no sites
    third = to(coords[::3].contiguous())
    coords, some, twice = to(coords), to(some), to(twice)
    calls: dict[str, Callable[[], list[Args]]] = {
        "kernel_map_submanifold": lambda: [(coords, _table(coords), [3] * 3, [1] * 3)],
        "kernel_map_neighbours": lambda: [
            (coords, _table(coords), [3] * 3, [1] * 3),
            (some, _table(some), [1, 3, 5], [1, 2, 1]),
        ],
        "kernel_map_given": lambda: [(coords, _table(coords), third, *numbers)],
        "kernel_map_footprint": lambda: [
            (coords, *numbers, [], False),
            (coords, *numbers, [12, 12, 12], False),
            (twice, *numbers, [], False),
            (coords, [2] * 3, [2] * 3, [0] * 3, [1] * 3, [], True),
        ],
        "kernel_map_floor": lambda: [(coords, _table(coords), *([[2] * 3] * 2), [0] * 3, [1] * 3)],
    }
    return calls[name]()


def _segment(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    values = random(size.rows, size.c_in, dtype=dtype)
    ids = torch.from_numpy(np.random.default_rng(6).integers(0, 5, size.rows))
    return [(to(values), to(ids), 6)]


def _norm(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    x = random(size.rows, size.c_in, dtype=dtype, seed=1)
    weight, bias = (to(random(size.c_in, seed=seed)) for seed in (2, 3))
    wide = x.double()
    mean = wide.sum(0) / max(size.rows, 1)
    var = ((wide - mean) ** 2).sum(0) / max(size.rows, 1)
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    x, statistics = to(x), (to(mean.to(kind)), to(var.to(kind)), 1e-5)
    if name == "batch_norm_train":
        return [(x, weight, bias, 1e-5), (x, None, None, 1e-3)]
    residual = random(size.rows, size.c_in, dtype=dtype, seed=5)
    if name == "batch_norm_relu_train":
        return [(x, weight, bias, to(residual), 1e-5), (x, None, None, None, 1e-3)]
    if name == "batch_norm_relu_again":
        return [(x, weight, bias, *statistics), (x, None, None, *statistics)]
    grad = to(random(size.rows, size.c_in, dtype=dtype, seed=4))
    if name == "batch_norm_relu_grad":
        return [
            (grad, x, weight, bias, to(torch.relu(residual)), *statistics),
            (grad, x, None, None, None, *statistics),
        ]
    return [(grad, x, weight, *statistics)]


def _voxelize(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    coords = cloud(size)
    places = coords.float() + random(*coords.shape).abs() * torch.tensor([0, 1, 1, 1])
    if name == "trilinear_map":
        coords = to(coords)
        return [(coords, _table(coords), to(places))]
    with _registry.force("reference"):
        rows, weights = voxelize.trilinear_map(coords, _table(coords), places)
    at, share = to(rows), to(weights.to(dtype))
    values = to(random(size.rows, size.c_in, dtype=dtype))
    return [(values, at, share) if name == "interpolate" else (values, at, share, size.rows)]


def _dense(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    coords = to(cloud(size))
    if name == "dense_gather":
        return [(to(random(3, 24, 24, 24, size.c_in, dtype=dtype)), coords)]
    return [(to(random(size.rows, size.c_in, dtype=dtype)), coords, 3, [24, 24, 24])]


def _linear(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    rows = to(random(size.rows, size.c_in, dtype=dtype, seed=1))
    made = to(random(size.rows, size.c_out, dtype=dtype, seed=3))
    if name == "linear_weight_grad":
        return [(rows, made)]
    weight = to(random(size.c_out, size.c_in, dtype=dtype, seed=2))
    return [(rows, weight, False), (made, weight, True)]


def _order(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    keys = torch.from_numpy(np.random.default_rng(7).integers(0, 9, size.rows))
    if name == "id_counts":
        return [(to(keys), 9), (to(keys.int()), 12)]
    if name == "key_order":
        return [(to(keys << 40),), (to((keys - 4) << 33),), (to(keys.int() - 4),)]
    return [(to(keys),)]


def _points(name: str, size: Size, dtype: torch.dtype, to: To) -> list[Args]:
    return points.calls(name, size.rows, size.c_in, to)


_MAKERS: dict[str, Callable[[str, Size, torch.dtype, To], list[Args]]] = {
    "conv": _conv,
    "coordinates": _coordinates,
    "dense": _dense,
    "kernel_map": _kernel_map,
    "linear": _linear,
    "norm": _norm,
    "order": _order,
    "pool": _pool,
    "segment": _segment,
    "voxelize": _voxelize,
    **dict.fromkeys(points.STEMS, _points),
}


def _here(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def samples(
    op: _registry.Op, size: Size, dtype: torch.dtype = torch.float32, to: To = _here
) -> list[Args]:
    """Argument lists for ``op``; KeyError where an op was added without any.

    Args:
        op: one of `all_ops`.
        size: how large they are.
        dtype: of features; ops outside of `FLOATING` have their own.
        to: what brings a tensor to the device that the op runs on.
    """
    module = op.reference.__module__.rsplit(".", 1)[-1]
    stem = module.removeprefix("_").removesuffix("_reference")  # it may have a file of its own
    return _MAKERS[stem](op.name, size, dtype, to)


def map_calls(case: clouds.Case, to: To = _here) -> Iterator[tuple[_registry.Op, Args]]:
    """Every map op that a case of the table can have, and what runs on the case's pairs."""
    coords, numbers = torch.from_numpy(case.coords.copy()), list(map(list, case.geometry.numbers))
    with _registry.force("reference"):
        out, *pairs = kernel_map.kernel_map_footprint(coords, *numbers, [], False)
    wanted = torch.cat([out.flip(0), out[:3] + torch.tensor([0] + [50] * case.geometry.ndim)])
    there, table = to(coords), _table(to(coords))
    yield coordinates.coordinate_unique, (there,)
    yield kernel_map.kernel_map_footprint, (there, *numbers, [], False)
    yield kernel_map.kernel_map_footprint, (there, *numbers, list(case.grid or []), False)
    yield kernel_map.kernel_map_footprint, (there, *numbers, [], True)
    yield kernel_map.kernel_map_floor, (there, table, *numbers)
    yield kernel_map.kernel_map_given, (there, table, to(wanted.int()), *numbers)
    if case.geometry.submanifold:
        taps = numbers[0], numbers[3]
        yield kernel_map.kernel_map_submanifold, (there, table, *taps)
        yield kernel_map.kernel_map_neighbours, (there, table, *taps)
    size, found = Size(str(case), len(coords), 4, 6), (tuple(pairs), len(coords), len(out))
    for op in (conv.conv_forward, conv.conv_input_grad, conv.conv_weight_grad):
        yield op, _convolution(op.name, size, torch.float32, to, *found, False)
    for op in (pool.pool_sum, pool.pool_max, pool.pool_max_grad):
        yield op, _pooling(op.name, size, torch.float32, to, *found)
