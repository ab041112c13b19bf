"""A few calls of every op of the sparse engine, for the checks that treat all ops alike."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle
import torch
from contract.engine import coords_of, random

import sparse3d.ops
from sparse3d import _registry
from sparse3d.ops import conv, coordinates, kernel_map, pool

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Size:
    """How large a sample is. ``wide`` passes every chunk and tile size; ``empty`` has no rows."""

    name: str
    rows: int
    c_in: int
    c_out: int


EMPTY, SMALL, WIDE = Size("empty", 0, 3, 4), Size("small", 40, 3, 4), Size("wide", 1500, 24, 40)


def engine_ops() -> dict[str, _registry.Op]:
    """Every op that a module of ``sparse3d.ops`` registers, by name."""
    for module in pkgutil.iter_modules(sparse3d.ops.__path__):
        importlib.import_module(f"sparse3d.ops.{module.name}")
    return {
        name: op
        for name, op in sorted(_registry._ops.items())
        if op.reference.__module__.startswith("sparse3d.ops.")
    }


def cloud(size: Size) -> torch.Tensor:
    """A cloud of two samples, sparse enough to have edges and dense enough to have neighbours."""
    if size.rows <= 40:
        return coords_of("interleaved", 3)[: size.rows]
    rng = np.random.default_rng(4)
    cells = np.stack(np.unravel_index(rng.permutation(24**3)[: size.rows], (24,) * 3), 1)
    batch = rng.integers(0, 2, (size.rows, 1))
    return torch.from_numpy(np.concatenate([batch, cells], axis=1).astype(np.int32))


def _table(coords: torch.Tensor) -> torch.Tensor:
    table: torch.Tensor = coordinates.coordinate_table(coords)
    return table


def _maps(size: Size, seed: int = 0) -> list[tuple[Args, int, int, bool]]:
    """Pairs, rows in, rows out, mirrored: of a submanifold and of a strided layer."""
    coords = cloud(size)
    subm = kernel_map.kernel_map_submanifold(coords, _table(coords), [3] * 3, [1] * 3)
    out, *down = kernel_map.kernel_map_footprint(
        coords, [3] * 3, [2] * 3, [1] * 3, [1] * 3, [], False
    )
    rows = len(coords)
    return [(tuple(subm), rows, rows, True), (tuple(down), rows, len(out), False)]


def _plans(pairs: Args, num_in: int, num_out: int, mirrored: bool) -> tuple[Any, Any]:
    src, dst, splits = pairs
    return (
        list(conv.conv_plan(src, dst, splits, num_in, num_out, mirrored)),
        list(conv.conv_plan(dst, src, splits, num_out, num_in, mirrored)),
    )


def _conv(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    calls: list[Args] = []
    for pairs, num_in, num_out, mirrored in _maps(size):
        plan, back = _plans(pairs, num_in, num_out, mirrored)
        x = random((num_in, size.c_in), dtype, 1)
        w = random((size.c_out, 27, size.c_in), dtype, 2)
        g = random((num_out, size.c_out), dtype, 3)
        bias, residual = random((size.c_out,), dtype, 4), random((num_out, size.c_out), dtype, 5)
        scale = random((size.c_out,), torch.float32, 6) if mirrored else None
        rest = (bias, residual, "relu", 0.0, scale)
        calls.append(
            {
                "conv_plan": (*pairs, num_in, num_out, mirrored),
                "conv_forward": (x, w, *pairs, plan, back, num_out, 1),
                "conv_input_grad": (g, w, *pairs, back, plan, num_in, 1),
                "conv_weight_grad": (x, g, *pairs, plan, back, 1),
                "conv_fused": (x, w, *pairs, plan, num_out, 1, *rest),
            }[name]
        )
    return calls


def _pool(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    calls: list[Args] = []
    for pairs, num_in, num_out, _ in _maps(size):
        x = random((num_in, size.c_in), dtype, 1)
        if name == "pool_max_grad":
            arg = pool.pool_max(x, *pairs, num_out)[1]
            calls.append((random((num_out, size.c_in), dtype, 2), arg, *pairs, num_in))
        else:
            calls.append((x, *pairs, num_out))
    return calls


def _coordinates(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    coords = cloud(size)
    if name == "coordinate_lookup":
        return [(coords, _table(coords), coords.flip(0).contiguous())]
    return [(coords,)]


def _kernel_map(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    coords = cloud(size)
    some, numbers = coords.clone(), ([3] * 3, [2] * 3, [1] * 3, [1] * 3)
    some[::7, 0] = -1  # no sites
    calls: dict[str, list[Args]] = {
        "kernel_map_submanifold": [(coords, _table(coords), [3] * 3, [1] * 3)],
        "kernel_map_neighbours": [
            (coords, _table(coords), [3] * 3, [1] * 3),
            (some, _table(some), [1, 3, 5], [1, 2, 1]),
        ],
        "kernel_map_given": [(coords, _table(coords), coords[::3].contiguous(), *numbers)],
        "kernel_map_footprint": [
            (coords, *numbers, [], False),
            (coords, *numbers, [12, 12, 12], False),
            (coords, [2] * 3, [2] * 3, [0] * 3, [1] * 3, [], True),
        ],
        "kernel_map_floor": [(coords, _table(coords), [2] * 3, [2] * 3, [0] * 3, [1] * 3)],
    }
    return calls[name]


def _segment(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    values = random((size.rows, size.c_in), dtype)
    ids = torch.from_numpy(np.random.default_rng(6).integers(0, 5, size.rows))
    return [(values, ids, 6)]


def _norm(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    x = random((size.rows, size.c_in), dtype, 1)
    weight, bias = random((size.c_in,), torch.float32, 2), random((size.c_in,), torch.float32, 3)
    if name == "batch_norm_train":
        return [(x, weight, bias, 1e-5), (x, None, None, 1e-3)]
    residual = random((size.rows, size.c_in), dtype, 5)
    if name == "batch_norm_relu_train":
        return [(x, weight, bias, residual, 1e-5), (x, None, None, None, 1e-3)]
    wide = x.double()
    count = max(size.rows, 1)
    mean = wide.sum(0) / count
    var = ((wide - mean) ** 2).sum(0) / count
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    grad = random((size.rows, size.c_in), dtype, 4)
    statistics = mean.to(kind), var.to(kind), 1e-5
    if name == "batch_norm_relu_again":
        return [(x, weight, bias, *statistics), (x, None, None, *statistics)]
    if name == "batch_norm_relu_grad":
        return [
            (grad, x, weight, bias, torch.relu(residual), *statistics),
            (grad, x, None, None, None, *statistics),
        ]
    return [(grad, x, weight, *statistics)]


def _voxelize(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    coords = cloud(size)
    points = coords.float() + random(coords.shape, torch.float32).abs() * torch.tensor([0, 1, 1, 1])
    rows, weights = oracle.trilinear(coords.numpy(), points.numpy())
    at, share = torch.from_numpy(rows), torch.from_numpy(weights).to(dtype)
    x = random((size.rows, size.c_in), dtype)
    calls: dict[str, list[Args]] = {
        "trilinear_map": [(coords, _table(coords), points)],
        "interpolate": [(x, at, share)],
        "interpolate_grad": [(random((len(points), size.c_in), dtype), at, share, size.rows)],
    }
    return calls[name]


def _dense(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    coords = cloud(size)
    if name == "dense_gather":
        return [(random((3, 24, 24, 24, size.c_in), dtype), coords)]
    return [(random((size.rows, size.c_in), dtype), coords, 3, [24, 24, 24])]


def _linear(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    rows = random((size.rows, size.c_in), dtype, 1)
    if name == "linear_weight_grad":
        return [(rows, random((size.rows, size.c_out), dtype, 2))]
    weight = random((size.c_out, size.c_in), dtype, 2)
    return [(rows, weight, False), (random((size.rows, size.c_out), dtype, 3), weight, True)]


def _order(name: str, size: Size, dtype: torch.dtype) -> list[Args]:
    keys = torch.from_numpy(np.random.default_rng(7).integers(0, 9, size.rows))
    if name == "id_counts":
        return [(keys, 9), (keys.int(), 12)]
    if name == "key_order":
        return [(keys << 40,), (keys.int() - 4,)]
    return [(keys,)]


_MAKERS: dict[str, Callable[[str, Size, torch.dtype], list[Args]]] = {
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
}


def samples(op: _registry.Op, size: Size, dtype: torch.dtype = torch.float32) -> list[Args]:
    """Argument lists for ``op``; KeyError where an op was added without any."""
    module = op.reference.__module__.rsplit(".", 1)[-1]
    stem = module.removeprefix("_").removesuffix("_reference")  # it may have a file of its own
    return _MAKERS[stem](op.name, size, dtype)
