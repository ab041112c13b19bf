"""Sparse convolution on one NVIDIA GPU, through the public API, each figure against its bound.

    python bench/bench_gpu.py [SECTION ...] [--json out.json]

Sections: layers, shell, maps, net, train, memory, first, profile, sweep. Wall: call and synchronize,
median; the coordinates of every call are fresh where a line says so. Device: replay of a CUDA graph of
20 calls, a call. Needs no network and no data.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _harness as H
import _scene
import torch
from bench_cpu import network
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry

KINDS = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}
RESULTS: dict[str, Any] = {}


def note(name: str, value: float, bound: float | None = None, unit: str = "ms") -> None:
    """One line of the table, kept for the JSON."""
    verdict = "" if bound is None else "met" if value <= bound else "MISSED"
    limit = "" if bound is None else f"<= {bound:g}"
    print(f"{name:62}{value:10.4g} {unit:3} {limit:9} {verdict}", flush=True)
    RESULTS[name] = {"value": value, "unit": unit, "bound": bound}


def wall(call: Callable[[], Any], repeats: int = 30, warm: int = 5, least: float = 0.1) -> float:
    """Median; short calls are warmed up and repeated for `least` seconds, as a clock needs them."""
    taken: list[float] = []
    for count in (warm, repeats):
        taken, start = [], time.perf_counter()
        torch.cuda.synchronize()
        while len(taken) < count or (time.perf_counter() - start < least and len(taken) < 2000):
            begin = time.perf_counter()
            call()
            torch.cuda.synchronize()
            taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


def host(call: Callable[[], Any], repeats: int = 20) -> float:
    """Milliseconds until the call returns; the device may lag behind."""
    taken = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - begin))
    torch.cuda.synchronize()
    return statistics.median(taken)


def device(call: Callable[[], Any], calls: int = 20) -> float:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(7):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / calls)
    return statistics.median(taken)


def launches(call: Callable[[], Any]) -> tuple[int, float, list[tuple[str, int, float]]]:
    """Kernels of a call, their time in microseconds, and the dearest of them."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    rows = [(e.key, e.count, e.self_device_time_total) for e in seen.key_averages()]
    rows = [row for row in rows if row[2] > 0]
    rows.sort(key=lambda row: -row[2])
    return sum(row[1] for row in rows), sum(row[2] for row in rows), rows


def grid(coords: torch.Tensor) -> list[int]:
    return [int((v + 16) // 16 * 16) for v in coords[:, 1:].amax(0)]


class Scans:
    """Scans on the GPU that take turns, each handed out under fresh storage."""

    def __init__(self, batch: int, dtype: torch.dtype) -> None:
        seeds = [(0,), (1,)] if batch == 1 else [tuple(range(batch))]
        made = [_scene.lidar(s) for s in seeds]
        self.shape = [max(v) for v in zip(*(grid(c) for c, _ in made), strict=True)]
        self.inputs = [(c.cuda(), f.cuda().to(dtype)) for c, f in made]
        self.batch, self.turn = batch, 0

    def next(self, check: bool = False) -> SparseConvTensor:
        self.turn += 1
        coords, features = self.inputs[self.turn % len(self.inputs)]
        return SparseConvTensor(features, coords.clone(), self.shape, self.batch, check=check)


def net_for(dtype: torch.dtype) -> nn.Module:
    """MinkUNet42 for inference, with weights that keep the size of what passes."""
    net = network(spnn).cuda().eval()
    for module in net.modules():
        if isinstance(module, spnn.SparseConvolution):
            fan = module.weight[0].numel()
            module.set_kernel(torch.randn_like(module.weight) * (2 / fan) ** 0.5)
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.bias, 0, 0.1)
    return spnn.fuse(net).to(dtype)


def error(run: Callable[..., Any], net: nn.Module, x: SparseConvTensor) -> float:
    """Of the net's output from the same net in float64 by the reference."""
    exact = copy.deepcopy(net).double()
    with torch.no_grad():
        ours = run(x)
        with _registry.force("reference"):
            theirs = exact(
                SparseConvTensor(
                    x.features.double(),
                    x.indices.clone(),
                    x.spatial_shape,
                    x.batch_size,
                    check=False,
                )
            )
    return float((ours.double() - theirs).norm() / theirs.norm())


def section_net() -> None:
    bounds = {("fp16", 1): 3.0, ("fp16", 4): 6.5, ("fp32", 1): 7.0, ("fp32", 4): 14.0}
    for batch in (1, 4):
        for kind in ("fp16", "fp32"):
            scans, net = Scans(batch, KINDS[kind]), net_for(KINDS[kind])
            with torch.no_grad():
                one_net(f"MinkUNet42 {kind} batch {batch}", scans, net, kind, bounds[kind, batch])


def one_net(name: str, scans: Scans, net: nn.Module, kind: str, bound: float) -> None:
    begin = time.perf_counter()
    ready = spnn.capture(net, scans.next(), room=1.1)
    note(f"{name}, capture", time.perf_counter() - begin, None, "s")
    note(f"{name}, captured, fresh coordinates, wall", wall(lambda: ready(scans.next())), bound)
    note(f"{name}, captured, the input checked too, wall", wall(lambda: ready(scans.next(True))))
    note(f"{name}, captured, host until it waits", host(ready.graph.replay))
    note(f"{name}, captured, replay alone", wall(ready.graph.replay))
    kernels(f"{name}, captured", lambda: ready(scans.next()), 24)
    note(f"{name}, layer by layer, fresh coordinates, wall", wall(lambda: net(scans.next())), bound)
    x = scans.next()
    net(x)
    note(f"{name}, layer by layer, warm maps, wall", wall(lambda: net(x)))
    note(f"{name}, layer by layer, warm maps, host", host(lambda: net(x)))
    note(f"{name}, feature path over warm maps, graph replay", device(lambda: net(x), 1))
    if scans.batch == 1:
        kernels(f"{name}, layer by layer", lambda: net(scans.next()), 12)
        limit = 1e-5 if kind == "fp32" else 2e-3
        note(f"{name}, error from float64", error(net, net, x), limit, "")
        note(f"{name}, captured, error from float64", error(ready, net, x), limit, "")
        with _registry.force("reference"):
            note(f"{name}, the torch reference's error", error(net, net, x), None, "")
        print(f"{name}: same bytes twice {torch.equal(net(x), net(x))}, "
              f"captured {torch.equal(ready(x), ready(x))}")  # fmt: skip


def kernels(name: str, call: Callable[[], Any], lines: int) -> None:
    count, spent, rows = launches(call)
    note(f"{name}, launches", count, None, "")
    note(f"{name}, device time of those", spent / 1e3)
    for key, times, micro in rows[:lines]:
        print(f"      {key[:70]:70} x{times:<4} {micro:8.0f} us")


def section_maps() -> None:
    from sparse3d.ops.conv import conv_plan
    from sparse3d.ops.coordinates import build_table
    from sparse3d.ops.kernel_map import kernel_map_neighbours

    for name, coords, bound in (
        ("scan", _scene.lidar()[0].cuda(), 0.1),
        ("shell", _scene.shell().cuda(), 0.15),
    ):
        from sparse3d.kernel_map import Coordinates

        def pairs(coords: torch.Tensor = coords) -> Any:
            sites = Coordinates(coords.clone(), None, 1)
            sites.trust_distinct()
            return sites.submanifold((3, 3, 3), (1, 1, 1))

        splits = torch.zeros(28, dtype=torch.int64)

        def table(coords: torch.Tensor = coords) -> torch.Tensor:
            return kernel_map_neighbours(coords, build_table(coords), [3, 3, 3], [1, 1, 1])

        def plan_of_table(table: Callable[[], torch.Tensor] = table) -> Any:
            made = table()
            return conv_plan(made, made, splits, len(made), len(made), True, True)

        with torch.no_grad():
            note(f"{name}: neighbour table [N, 27] from coordinates, wall", wall(table), bound)
            note(f"{name}: neighbour table, in a CUDA graph", device(table, 5), bound)
            note(f"{name}: with row sort and tiles, wall", wall(plan_of_table), 0.25)
            note(f"{name}: row sort too, in a CUDA graph", device(plan_of_table, 5), 0.25)
            count, spent, rows = launches(plan_of_table)
            note(f"{name}: with row sort and tiles, launches", count, None, "")
            for key, times, micro in rows[:14]:
                print(f"      {key[:70]:70} x{times:<4} {micro:8.0f} us")
        note(f"{name}: pairs of 27 taps from coordinates, wall", wall(pairs))
        note(f"{name}: pairs with row sort and tiles, wall", wall(lambda: pairs().plan()))
        made = pairs()

        def plan(made: Any = made) -> None:
            made._plans.clear()
            made.plan()

        note(f"{name}: row sort and tiles alone, wall", wall(plan))
        _, spent, rows = launches(plan)
        note(f"{name}: row sort and tiles alone, device", spent / 1e3)
        for key, times, micro in rows[:8]:
            print(f"      {key[:70]:70} x{times:<4} {micro:8.0f} us")


def layer_lines(
    scene: str, coords: torch.Tensor, width: int, kind: str, bounds: dict[str, float]
) -> None:
    dtype = KINDS[kind]
    x = SparseConvTensor(
        torch.randn(len(coords), width, device="cuda", dtype=dtype), coords, grid(coords), 1
    )
    layer = spnn.SubMConv3d(width, width, 3, bias=False, indice_key="k").to("cuda", dtype)
    layer(x)
    pairs = len(x.coordinates.submanifold((3, 3, 3), (1, 1, 1)))
    flop = 2 * pairs * width**2
    name = f"SubMConv {width} {kind} {scene}"
    with torch.no_grad():
        note(f"{name}, forward, wall", wall(lambda: layer(x)), bounds.get("wall"))
        note(f"{name}, forward, host until it returns", host(lambda: layer(x)))
        spent = device(lambda: layer(x))
        note(f"{name}, forward, device", spent, bounds.get("device"))
        note(f"{name}, forward, useful", flop / spent / 1e9, None, "TF")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer(x)
        note(f"{name}, forward, in a CUDA graph, wall", wall(graph.replay), bounds.get("wall"))
    leaf = x.replace_feature(x.features.clone().requires_grad_())
    up = torch.randn(len(coords), width, device="cuda", dtype=dtype)
    wanted = [leaf.features, layer.weight]

    def step() -> Any:
        return torch.autograd.grad(layer(leaf).features, wanted, up)

    note(f"{name}, forward and backward, wall", wall(step), bounds.get("both"))
    _, _, rows = launches(step)
    for key, times, micro in rows[:6]:
        print(f"      {key[:70]:70} x{times:<4} {micro:8.0f} us")


def section_layers() -> None:
    scan = _scene.lidar()[0].cuda()
    for width, bound in ((32, 0.06), (64, 0.07), (128, None)):
        layer_lines("scan", scan, width, "fp16", {"wall": bound} if bound else {})
    layer_lines("scan", scan, 64, "fp32", {})


def section_shell() -> None:
    ball = _scene.shell().cuda()
    layer_lines("shell", ball, 256, "fp16", {"wall": 0.95, "device": 0.85, "both": 2.9})
    layer_lines("shell", ball, 256, "fp32", {"wall": 5.5, "both": 16.0})
    layer_lines("shell", ball, 64, "fp16", {})


def section_train() -> None:
    for batch, bound in ((1, 12.0), (4, 25.0)):
        name = f"MinkUNet42 training step, AMP, batch {batch}"
        for captured in (True, False):
            scans, net = Scans(batch, torch.float32), network(spnn).cuda().train()
            optimiser = torch.optim.AdamW(net.parameters(), 1e-3, fused=True, capturable=True)
            labels = [torch.randint(0, 19, (len(c),), device="cuda") for c, _ in scans.inputs]

            def step(x: SparseConvTensor, wanted: torch.Tensor) -> torch.Tensor:
                with torch.autocast("cuda", torch.float16, cache_enabled=False):
                    loss = nn.functional.cross_entropy(net(x), wanted)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                return loss

            def both() -> tuple[SparseConvTensor, torch.Tensor]:
                x = scans.next()
                return x, labels[scans.turn % len(labels)]

            if not captured:
                note(f"{name}, layer by layer, wall", wall(lambda: step(*both()), 12, 3), bound)
                note(f"{name}, layer by layer, host", host(lambda: step(*both()), 8))
                kernels(f"{name}, layer by layer", lambda: step(*both()), 12)
                continue
            scans.turn = 1  # the larger scene is next
            ready = spnn.capture(step, *both(), room=1.1, train=True)
            note(f"{name}, captured, wall", wall(lambda: ready(*both()), 20), bound)
            kernels(f"{name}, captured", lambda: ready(*both()), 30)
            print(f"      losses {[round(float(ready(*both())), 4) for _ in range(6)]}")


def section_memory() -> None:
    others = torch.cuda.memory_allocated()  # workspaces of earlier sections
    scans, net = Scans(4, torch.float16), net_for(torch.float16)
    with torch.no_grad():
        net(scans.next())
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        net(scans.next())
    note(
        "MinkUNet42 fp16 batch 4 inference, peak memory",
        (torch.cuda.max_memory_allocated() - others) / 1e9,
        0.8,
        "GB",
    )


def first_call() -> None:
    """In a fresh process: seconds to the first result after torch and its context are up."""
    torch.zeros(1, device="cuda")
    coords, features = _scene.lidar()
    coords, features = coords.cuda(), features.cuda().half()
    net = net_for(torch.float16)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        x = SparseConvTensor(features, coords, grid(coords), 1)
        net(x)
    torch.cuda.synchronize()
    print(json.dumps(time.perf_counter() - begin))


def section_first() -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = {"TRITON_CACHE_DIR": folder + "/triton", "XDG_CACHE_HOME": folder}
        for name, bound in (("empty cache", 20.0), ("second process", 3.0)):
            done = subprocess.run(
                [sys.executable, __file__, "--first-call"],
                env=os.environ | places,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(done.stderr[-2000:])
                return
            taken = json.loads(done.stdout.splitlines()[-1])
            note(f"first MinkUNet42 call, {name}", taken, bound, "s")


def section_profile() -> None:
    """Where the host's time goes, forward with warm maps, fresh maps, and a training step."""
    import cProfile
    import pstats

    scans, net = Scans(1, torch.float16), net_for(torch.float16)
    with torch.no_grad():
        x = scans.next()
        net(x)
        for name, call in (("warm", lambda: net(x)), ("fresh", lambda: net(scans.next()))):
            call()
            torch.cuda.synchronize()
            seen = cProfile.Profile()
            seen.enable()
            for _ in range(10):
                call()
            seen.disable()
            torch.cuda.synchronize()
            print(f"-- profile, {name} maps, 10 forwards")
            pstats.Stats(seen).sort_stats("tottime").print_stats(30)


def section_sweep() -> None:
    """Tiles of the net's layers: device time of the chosen one and of the best candidates."""
    levels = [_scene.lidar()[0].cuda()]
    for _ in range(4):
        cells = levels[-1].clone()
        cells[:, 1:] >>= 1
        levels.append(cells.unique(dim=0))
    work = [(_scene.shell().cuda(), 256), (_scene.lidar(range(4))[0].cuda(), 96)]
    work += [(levels[0], 32), (levels[0], 96), (levels[2], 128), (levels[3], 256), (levels[4], 256)]
    for coords, width in work:
        sites = SparseConvTensor(
            torch.zeros(len(coords), 1, device="cuda"), coords, None, 1, check=False
        )
        pairs = sites.coordinates.submanifold((3, 3, 3), (1, 1, 1))
        for kind in ("fp16", "fp32"):
            sweep_layer(pairs, len(coords), width, kind)


def sweep_layer(pairs: Any, rows: int, width: int, kind: str) -> None:
    from sparse3d.cuda import _plan, conv
    from sparse3d.cuda._tiles import ConvTile, GradTile, conv_tile, grad_tile, rows_a_tile

    terms, whole = (1 if kind == "fp16" else 3), min(width, 128)
    x, up = (torch.randn(rows, width, device="cuda", dtype=KINDS[kind]) for _ in range(2))
    w = torch.randn(width, 27, width, device="cuda", dtype=KINDS[kind])
    bounds = pairs.splits.cuda()
    found = []
    for bm in (64, 128):
        plan = _plan.tiles_of(pairs.neighbours(), bounds, 27, bm)
        room = conv._shared(torch.cuda.current_device())
        picked = conv_tile(plan.filled.shape[0], bm, width, width, 1, terms, room)
        tried = {picked}
        for bn in sorted({whole, 64, min(width, 256)}):
            for bk, stages in ((32, 3), (32, 4), (64, 2), (64, 3), (64, 4)):
                warps = 8 if bm * bn >= 128 * 128 else 4
                if (
                    width % bk == 0
                    and bn <= max(width, 64)
                    and not (terms == 3 and bk * stages > 128)
                ):
                    tried.add(ConvTile(bn, bk, warps, stages, picked.split))
        for tile in tried:
            chosen = "*" if bm == rows_a_tile(rows) and tile == picked else ""
            call = lambda: conv.run(x, w, plan, rows, 1, tile=tile)  # noqa: E731
            found.append((device(call, 5), bm, *tile, chosen))
    show(f"{rows} rows {width} {kind}", found)
    picked = grad_tile(rows, 27, width, width, 1, terms)
    lists, found = (pairs.src, pairs.dst, bounds, 1), []
    sizes = [(picked.bo, picked.bi, bp, w, st) for bp in (32, 64) for w in (4, 8) for st in (3, 4)]
    for bo, bi, bp, warps, stages in sizes:
        for parts in sorted({picked.parts, 2 * picked.parts, max(1, picked.parts // 2)}):
            if terms * bp * (bo + bi) * stages > 3 * 64 * 256 or (
                warps == 4 and bo * bi > 128 * 64
            ):
                continue
            tile = GradTile(bo, bi, bp, warps, stages, parts)
            call = lambda: conv.weight_grad(x, up, *lists, tile)  # noqa: E731
            found.append((device(call, 5), *tile, "*" if tile == picked else ""))
    show("      weight gradient", found)


def show(name: str, found: list[tuple[Any, ...]]) -> None:
    found.sort()
    kept = [f for f in found if f[-1]] + found[:4]
    print(name + ": " + "; ".join(f"{f[0]:.4f} {f[1:]}" for f in kept), flush=True)


def main() -> None:
    sections = {
        name.removeprefix("section_"): call
        for name, call in globals().items()
        if name.startswith("section_")
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(4)
    if args.first_call:
        first_call()
        return
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name in args.sections or [s for s in sections if s not in ("sweep", "profile")]:
        begin = time.perf_counter()
        print(f"== {name}", flush=True)
        sections[name]()
        gc.collect()  # captured networks are cycles
        torch.cuda.empty_cache()
        print(f"== {name} took {time.perf_counter() - begin:.0f} s", flush=True)
    if args.json:
        H.write(args.json, {"provenance": H.provenance(), "results": RESULTS})


if __name__ == "__main__":
    main()
