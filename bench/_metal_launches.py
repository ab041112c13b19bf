"""What the emulator's meter counts of every operator's launches, on a piece of a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import metal_emu
import torch

from sparse3d import _registry, pointops
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates
from sparse3d.ops import conv, coordinates, dense, kernel_map, norm, pool, segment, voxelize

HALF = Geometry((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1))
ROWS, CHANNELS, SAMPLES = 1500, 32, 48


def nearest(voxels: torch.Tensor, count: int) -> torch.Tensor:
    """A cube of a scan around its middle, about so many voxels, in their order."""
    distance = (voxels[:, 2:] - voxels[:, 2:].median(0).values).abs().amax(1)
    return voxels[distance.argsort(stable=True)[:count].sort().values].contiguous()


def calls(sites: torch.Tensor) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Operators by name; what they need is made here, on the backend in force."""
    rows, ones, three, two = len(sites), [1] * 3, [3] * 3, [2] * 3
    table = coordinates.coordinate_table(sites)
    twice = torch.cat([sites, sites[::3]])
    own, maps = Coordinates(sites, None, 1), kernel_map
    pairs, down = own.submanifold([3, 3, 3], [1, 1, 1]), own.footprint(HALF, None)[0]
    yield "coordinate_table", lambda: coordinates.coordinate_table(sites)
    yield "coordinate_lookup", lambda: coordinates.coordinate_lookup(sites, table, sites)
    yield "coordinate_unique", lambda: coordinates.coordinate_unique(twice)
    yield "map, submanifold", lambda: maps.kernel_map_submanifold(sites, table, three, ones)
    none = ([0] * 3, ones)
    yield "map, footprint", lambda: maps.kernel_map_footprint(sites, two, two, *none, [], False)
    yield "map, floor", lambda: maps.kernel_map_floor(sites, table, two, two, *none)
    yield (
        "map, given",
        lambda: maps.kernel_map_given(sites, table, sites[::2], three, ones, *[ones] * 2),
    )
    yield "map, generative", lambda: maps.kernel_map_footprint(sites, two, two, *none, [], True)
    lists, plans = (pairs.src, pairs.dst, pairs.splits), (pairs.plan(), pairs.grad_plan())
    yield "conv_plan", lambda: conv.conv_plan(*lists, rows, rows, True)
    for cin in (4, CHANNELS):
        yield from convolutions(lists, plans, rows, cin)
    x = torch.randn(rows, CHANNELS)
    to_half = (down.src, down.dst, down.splits)
    arg = pool.pool_max(x, *to_half, down.num_out)[1]
    grad = torch.randn(down.num_out, CHANNELS)
    yield "pool_sum", lambda: pool.pool_sum(x, *to_half, down.num_out)
    yield "pool_max", lambda: pool.pool_max(x, *to_half, down.num_out)
    yield "pool_max_grad", lambda: pool.pool_max_grad(grad, arg, *to_half, rows)
    yield from of_points(sites, table, x)


def convolutions(
    lists: tuple[torch.Tensor, ...], plans: tuple[Any, Any], rows: int, cin: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A submanifold layer's forward pass and gradients."""
    x, weight = torch.randn(rows, cin), torch.randn(CHANNELS, 27, cin)
    grad, name = torch.randn(rows, CHANNELS), f"{cin}->{CHANNELS}"
    back = plans[::-1]
    yield f"conv {name}", lambda: conv.conv_forward(x, weight, *lists, *plans, rows, 1)
    yield f"conv {name}, dx", lambda: conv.conv_input_grad(grad, weight, *lists, *back, rows, 1)
    yield f"conv {name}, dw", lambda: conv.conv_weight_grad(x, grad, *lists, *plans, 1)


def of_points(
    sites: torch.Tensor, table: torch.Tensor, x: torch.Tensor
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Voxelize, segments, dense, norm and the searches."""
    rows = len(sites)
    points = sites.float() + torch.rand(sites.shape) * torch.tensor([0.0, 1, 1, 1])
    at, share = voxelize.trilinear_map(sites, table, points)
    yield "trilinear_map", lambda: voxelize.trilinear_map(sites, table, points)
    yield "interpolate", lambda: voxelize.interpolate(x, at, share)
    yield "interpolate_grad", lambda: voxelize.interpolate_grad(x, at, share, rows)
    ids = torch.arange(rows) // 3
    yield "segment_sum", lambda: segment.segment_sum(x, ids, rows // 3 + 1)
    yield "segment_max", lambda: segment.segment_max(x, ids, rows // 3 + 1)
    near = sites.clone()
    near[:, 1:] = near[:, 1:] % 16
    grid = torch.randn(1, 16, 16, 16, CHANNELS)
    yield "dense_scatter", lambda: dense.dense_scatter(x, near, 1, [16] * 3)
    yield "dense_gather", lambda: dense.dense_gather(grid, near)
    scale, mean = torch.ones(CHANNELS), x.mean(0)
    var = x.var(0, unbiased=False)
    yield "batch_norm_train", lambda: norm.batch_norm_train(x, scale, scale, 1e-3)
    yield "batch_norm_grad", lambda: norm.batch_norm_grad(x, x, scale, mean, var, 1e-3)
    cloud = points[None, :, 1:].contiguous()
    fps = pointops.furthest_point_sample
    yield "fps, one group", lambda: fps(cloud, SAMPLES, strategy="single")
    yield "fps, many groups", lambda: fps(cloud, SAMPLES, strategy="multigroup")
    few = cloud[:, :256].contiguous()
    yield "knn", lambda: pointops.knn(few, few, 8)
    yield "ball_query", lambda: pointops.ball_query(few, few, 2.0, 8)


def records(voxels: torch.Tensor, rows: int = ROWS) -> list[dict[str, Any]]:
    """A row for each kernel of each operator."""
    torch.manual_seed(0)
    made = []
    with metal_emu.installed() as running, _registry.force("metal"), _registry.strict():
        for name, call in calls(nearest(voxels, rows)):
            running.log.clear()
            call()
            memory = running.threadgroup_bytes()
            for kernel in dict.fromkeys(t.kernel for t in running.log):
                row = {"operator": name, "kernel": kernel}
                made.append(row | _summed(running.launches(kernel), memory[kernel]))
    return made


def _summed(launches: list[metal_emu.Traffic], memory: int) -> dict[str, int]:
    """Counts of one call's launches of a kernel."""
    return {
        "launches": len(launches),
        "groups": sum(t.threadgroups for t in launches),
        "bytes read": sum(t.total("merged", "device") for t in launches),
        "written": sum(t.total("written", "device") for t in launches),
        "atomics": sum(t.device_atomics for t in launches),
        "barriers": sum(t.barriers + t.simd_barriers for t in launches),
        "threadgroup memory": memory,
        "threadgroup bytes": sum(t.threadgroup_bytes for t in launches),
        "threadgroup atomics": sum(t.total("atomics", "threadgroup") for t in launches),
        "matrix macs": sum(t.simd_macs for t in launches),
        "fma": sum(t.fmas for t in launches),
    }
