"""Maps and point operators on an NVIDIA GPU: wall time of a call and a synchronize, device time.

    python bench/bench_cuda.py [--json bench/results/cuda.json] [--repeats 30]

Maps are built from fresh coordinates in every call. Exactness is checked before anything is timed:
maps against the torch reference, point operators against it on the queries that brute force can do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _scene
import torch
from _harness import provenance, write

from sparse3d import _registry, pointops
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates
from sparse3d.ops import coordinates
from sparse3d.ops import kernel_map as rules

DOWN = Geometry((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1))
CUBE, ONES = [3, 3, 3], [1, 1, 1]
LEVELS = 5


def scans(batch: int) -> torch.Tensor:
    """Sites of simulated scans at 0.05 m."""
    return _scene.lidar(range(batch))[0]


def wall(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Milliseconds of a call and a synchronize."""
    for _ in range(min(5, repeats)):
        run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - begin))
    return {"median": statistics.median(taken), "best": min(taken)}


def device(run: Callable[[], Any], calls: int = 20) -> float:
    """Milliseconds of a call without host syncs, as a graph of them replayed."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    taken = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / calls)
    return statistics.median(taken)


def launches(run: Callable[[], Any]) -> int:
    """Kernels that a call launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    kinds = torch.autograd.DeviceType
    return sum(e.count for e in seen.key_averages() if e.device_type == kinds.CUDA)


def unet(coords: torch.Tensor, batch: int) -> list[Any]:
    """All maps of a MinkUNet."""
    sites, made = Coordinates(coords, None, batch), []
    for level in range(LEVELS):
        made.append(sites.submanifold(CUBE, ONES))
        if level + 1 < LEVELS:
            down, sites = sites.floor(DOWN, None)
            made.append(down)
    return made


def table_of_neighbours(coords: torch.Tensor) -> torch.Tensor:
    """Table and neighbour table [27, N], without the compaction, which needs a row count."""
    from sparse3d.metal import kernel_map

    return kernel_map.neighbours(coords, coordinates.build_table(coords), CUBE, ONES)


def check_maps(coords: torch.Tensor, batch: int) -> None:
    ours = unet(coords, batch)
    with _registry.force("reference"):
        theirs = unet(coords, batch)
    for a, b in zip(ours, theirs, strict=True):
        same = all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("src", "dst", "splits"))
        if not same:
            raise SystemExit("a map is wrong: no numbers")


def bench_maps(repeats: int) -> Iterator[dict[str, Any]]:
    for batch in (1, 4):
        coords = scans(batch).cuda()
        check_maps(coords, batch)
        name = f"{len(coords):,} voxels"
        table = device(lambda coords=coords: table_of_neighbours(coords))
        yield {"row": f"neighbour table 27, {name}", "device": table}
        for label, run in (
            ("neighbour table 27", lambda coords=coords: table_of_neighbours(coords)),
            ("map 27 (table, pairs)", lambda coords=coords: rules.submanifold(coords, CUBE, ONES)),
            ("map of MinkUNet, 9 maps", lambda coords=coords, b=batch: unet(coords, b)),
        ):
            taken = wall(run, repeats)
            yield {"row": f"{label}, {name}", "wall": taken, "launches": launches(run)}


def exact(points: torch.Tensor, few: torch.Tensor, radius: float) -> dict[str, bool]:
    """Ours against the reference on the GPU: all samples, and the few queries."""
    runs: dict[str, Callable[[], torch.Tensor]] = {
        "fps": lambda: pointops.furthest_point_sample(points[None], 1024),
        "knn": lambda: pointops.knn(few[None], points[None], 16)[1],
        "ball": lambda: pointops.ball_query(few[None], points[None], radius, 32)[1],
    }
    same = {}
    for name, run in runs.items():
        mine = run()
        with _registry.force("reference"):
            same[name] = torch.equal(mine, run())
    return same


def bench_sampling(repeats: int) -> Iterator[dict[str, Any]]:
    """One group a cloud, or many: what the choice in sparse3d/metal/fps.py stands on."""
    from sparse3d.pointops.fps import fps_sample

    for count, copies in ((4_096, 1), (16_384, 1), (65_536, 1), (16_384, 16), (65_536, 16)):
        points = torch.rand(count * copies, 3, device="cuda")
        begins = torch.arange(copies) * count
        outs = torch.arange(copies) * 1024
        parts = [begins, begins + count, outs, outs + 1024, begins, torch.zeros_like(begins)]
        clouds = torch.stack(parts, 1)
        for how in ("single", "multigroup"):
            taken = wall(
                lambda p=points, c=clouds, n=1024 * copies, h=how: fps_sample(
                    p, c, n, True, False, 0, h
                ),
                5,
            )
            yield {"row": f"FPS 1,024 of {copies} x {count:,}, {how}", "wall": taken}


def bench_points(repeats: int) -> Iterator[dict[str, Any]]:
    for count, side, radius in ((100_000, 10.0, 0.2), (1_000_000, 20.0, 0.2)):
        draw = torch.Generator().manual_seed(0)
        points = (torch.rand(count, 3, generator=draw) * side).cuda()
        few = points[:: count // 256][:256].contiguous()
        same, all_of = exact(points, few, radius), points[None]
        several = repeats if count < 500_000 else 2
        for name, label, run in (
            ("fps", "FPS 1,024", lambda p=all_of: pointops.furthest_point_sample(p, 1024)),
            ("knn", "kNN 16, every point", lambda p=all_of: pointops.knn(p, p, 16)),
            (
                "ball",
                f"ball query 32, r = {radius}, every point",
                lambda p=all_of, r=radius: pointops.ball_query(p, p, r, 32),
            ),
        ):
            taken = wall(run, several)
            yield {"row": f"{label}, {count:,}", "wall": taken, "exact": same[name]}


def line(row: dict[str, Any]) -> str:
    shown = f"{row['row']:48s}"
    if "device" in row:
        return f"{shown} device {row['device']:8.3f} ms"
    shown += f" wall {row['wall']['median']:9.3f} ms (best {row['wall']['best']:.3f})"
    if "launches" in row:
        shown += f", {row['launches']} launches"
    return shown if "exact" not in row else f"{shown}, {'exact' if row['exact'] else 'WRONG'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reason = _registry.load("cuda")
    if reason is not None:
        print(f"cuda: {reason}", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    begin = time.perf_counter()
    unet(scans(1).cuda(), 1)
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    print(f"first maps of this process, scene included: {first:.2f} s")
    rows = []
    for bench in (bench_maps, bench_sampling, bench_points):
        for row in bench(args.repeats):
            print(line(row), flush=True)
            rows.append(row)
    if args.json:
        where = {**provenance(), "gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        write(args.json, {"provenance": where, "first_s": first, "rows": rows})
    return 0 if all(row.get("exact", True) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
