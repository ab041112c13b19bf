"""Sparse convolution on the CPU: ours, spconv 2.3.8 and torch.mm side by side in one run.

    python bench/bench_cpu.py [--scene frame|street] [--threads 2] [--json out.json] [--rows N]
                              [--only WORD ...] [--skip WORD ...] [--peer PYTHON] [--growth growth.png]

Each library runs in a process of its own with the same network. The processes take turns in rounds,
so that both meet the machine in the same state, and torch.mm is probed here between rounds: a round
whose two probes differ by more than 10 % is discarded. The figures of a piece of work are medians
over the rounds that count. `--peer` names an interpreter that has spconv.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import _harness as H
import torch
from _minkunet import gigaflops, network

WIDTHS = ((4, 32), (32, 32), (64, 64), (96, 96), (128, 128), (256, 256))
TRAINED, DEEP, LEVELS = (32, 64, 128), (64, 128, 256), 5
MOVED = 1.1  # more than this between two probes: the machine was disturbed

EVAL, HALF, STEP = "net eval float32", "net eval bfloat16", "net training step"
MAPS = [*(f"map level {level}" for level in range(LEVELS)), "maps all"]
LAYERS = [f"layer {a} {b}" for a, b in WIDTHS]
BOTH_WAYS = [f"layer {c} {c} forward + backward" for c in TRAINED]
STRIDED = [f"layer {c} {c} level {level}" for level in (2, 3) for c in DEEP]
HALVES = [f"layer {a} {b} bfloat16" for a, b in WIDTHS if a >= 32]
SHARED = [EVAL, STEP, *MAPS, *LAYERS, *BOTH_WAYS]
WORKS = [EVAL, STEP, HALF, *MAPS, *LAYERS, *BOTH_WAYS, *STRIDED, *HALVES]


class Bench:
    """One library on one scene; `work` measures a piece by its name."""

    def __init__(self, library: str, coords: torch.Tensor, repeats: int) -> None:
        self.ours = library == "ours"
        self.sp = importlib.import_module("sparse3d.nn" if self.ours else "spconv.pytorch")
        if not self.ours:
            ops = importlib.import_module("spconv.pytorch.ops")
            ops.get_current_stream = lambda: 0  # its backward on a CPU build of torch
        self.coords, self.repeats = coords, repeats
        self.shape = [int((v + 16) // 16 * 16) for v in coords[:, 1:].amax(0)]
        self.net: Any = None
        self.ready: tuple[str, Any, dict[str, Any]] | None = None
        self.scenes: list[Any] = []

    def work(self, name: str) -> dict[str, Any]:
        if name == "about":
            return self._about()
        first = self.ready is None or self.ready[0] != name
        if first:
            self.ready = None  # frees what the last piece held
            self.ready = (name, *self._prepare(name))
        _, run, result = self.ready
        net = name.startswith("net")
        result = result | H.milliseconds(run, 1 if net else self.repeats, first * (1 if net else 3))
        if name in (EVAL, STEP):
            result["rss"] = H.peak_rss()
        return result

    def _prepare(self, name: str) -> tuple[Any, dict[str, Any]]:
        if name.startswith("net"):
            return self._net(name), {}
        if name.startswith("map"):
            return self._map(name), {}
        return self._layer(name)

    def _about(self) -> dict[str, Any]:
        x = self._input(torch.randn(len(self.coords), 4))
        maps = importlib.import_module("sparse3d.cpu._library")
        pairs = len(x.coordinates.submanifold((3,) * 3, (1,) * 3))
        return {
            "gigaflops": gigaflops(network(self.sp).eval(), x),
            "pairs": pairs,
            "paths": maps.paths(),
        }

    def _input(self, features: torch.Tensor, level: int = 0) -> Any:
        coords, shape = self._levels()[level] if level else (self.coords, self.shape)
        return self.sp.SparseConvTensor(features, coords, shape, 1)

    def _net(self, name: str) -> Any:
        if self.net is None:
            self.net = network(self.sp)
        x = torch.randn(len(self.coords), 4)
        if name == STEP:
            self.net.train()

            def step() -> None:
                self.net.zero_grad(set_to_none=True)
                self.net(self._input(x)).sum().backward()

            return step
        net = self.net.eval()
        if name == HALF:
            net, x = network(self.sp).bfloat16().eval(), x.bfloat16()
        return torch.no_grad()(lambda: net(self._input(x)))

    def _levels(self) -> list[tuple[torch.Tensor, list[int]]]:
        if not self.scenes:
            coords, shape = self.coords, list(self.shape)
            for _ in range(LEVELS):
                self.scenes.append((coords, shape))
                coords = self._find(coords, shape, 2, False).contiguous()
                shape = [v // 2 for v in shape]
        return self.scenes

    def _map(self, name: str) -> Any:
        levels = self._levels()
        if name != "maps all":
            coords, shape = levels[int(name.rsplit(maxsplit=1)[-1])]
            return lambda: self._find(coords, shape, 3, True)

        def everything() -> None:
            for level, (coords, shape) in enumerate(levels):
                self._find(coords, shape, 3, True)
                if level < LEVELS - 1:
                    self._find(coords, shape, 2, False)

        return everything

    def _find(self, coords: torch.Tensor, shape: list[int], size: int, subm: bool) -> torch.Tensor:
        """Make a kernel map; returns its output sites, of a submanifold map something else."""
        if self.ours:
            return find_ours(coords, shape, size, subm)
        ops = importlib.import_module("spconv.pytorch.ops")
        algo = importlib.import_module("spconv.core").ConvAlgo.Native
        step, pad = (1, 1) if subm else (size, 0)
        lists = ([size] * 3, [step] * 3, [pad] * 3, [1] * 3, [0] * 3)
        return ops.get_indice_pairs(coords, 1, shape, algo, *lists, subm, False)[0]

    def _layer(self, name: str) -> tuple[Any, dict[str, Any]]:
        """A 3 x 3 x 3 submanifold layer whose map lies on its input already."""
        _, a, b, *more = name.split()
        level = int(more[-1]) if "level" in more else 0
        dtype = torch.bfloat16 if "bfloat16" in more else torch.float32
        layer = self.sp.SubMConv3d(int(a), int(b), 3, bias=False, indice_key="a").to(dtype)
        rows = len(self._levels()[level][0]) if level else len(self.coords)
        features = torch.randn(rows, int(a)).to(dtype)
        x = self._input(features, level)
        with torch.no_grad():
            x.indice_dict = layer(x).indice_dict
        result = {}
        if self.ours:
            pairs = len(x.indice_dict["a"].kernel_map)
            result["gigaflops"] = 2e-9 * pairs * int(a) * int(b)
        if "backward" not in more:
            return torch.no_grad()(lambda: layer(x)), result
        if self.ours:
            result["gigaflops"] *= 3
        x = x.replace_feature(features.requires_grad_())
        grad = torch.randn(rows, int(b))

        def both() -> None:
            layer.zero_grad(set_to_none=True)
            features.grad = None
            layer(x).features.backward(grad)

        return both, result


def find_ours(coords: torch.Tensor, shape: list[int], size: int, subm: bool) -> torch.Tensor:
    from sparse3d.geometry import Geometry
    from sparse3d.ops import kernel_map

    if subm:
        return kernel_map.submanifold(coords, (size,) * 3, (1,) * 3)[0]
    geometry = Geometry((size,) * 3, (size,) * 3, (0,) * 3, (1,) * 3)
    return kernel_map.footprint(coords, geometry, [v // size for v in shape])[0]


def growth(coords: torch.Tensor, repeats: int, picture: Path) -> dict[str, Any]:
    """Nanoseconds a voxel from 10 thousand to 2 million voxels: map and a 32 -> 32 layer. The best
    of several runs, more of small ones, which a moment disturbs."""
    import sparse3d.nn as sp

    found: dict[str, Any] = {"rows": [], "pairs a voxel": [], "map": [], "layer": []}
    layer = sp.SubMConv3d(32, 32, 3, bias=False)
    for rows in (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000):
        c, times = H.grow(coords, rows), max(3 * repeats, 2_000_000 // rows)
        shape = [int(v) + 1 for v in c[:, 1:].amax(0)]
        x = sp.SparseConvTensor(torch.randn(rows, 32), c, shape, 1)
        per = 1e6 / rows
        with torch.no_grad():
            run = lambda c=c, s=shape: find_ours(c, s, 3, True)  # noqa: E731
            found["map"].append(H.milliseconds(run, times, 2)["best"] * per)
            run = lambda x=x: layer(x)  # noqa: E731
            found["layer"].append(H.milliseconds(run, times, 2)["best"] * per)
        found["rows"].append(rows)
        found["pairs a voxel"].append(len(find_ours(c, shape, 3, True)) / rows)
        print(
            f"  {rows} voxels: map {found['map'][-1]:.0f}, layer {found['layer'][-1]:.0f} ns each"
        )
    for name in ("map", "layer"):
        found[f"{name} spread"] = max(found[name]) / min(found[name])
    plot(found, picture)
    return found


def plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, label in (("map", "3x3x3 map"), ("layer", "32 to 32 layer, map cached")):
        axes.plot(
            found["rows"], found[name], "o-", label=f"{label} ({found[name + ' spread']:.2f}x)"
        )
    axes.set(xscale="log", xlabel="voxels", ylabel="ns per voxel", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


class Worker:
    """A library in a process of its own that measures what it is told to."""

    def __init__(self, args: argparse.Namespace, library: str, python: str) -> None:
        command = [python, __file__, "--library", library]
        for name in ("scene", "threads", "repeats", "rows"):
            command += [f"--{name}", str(getattr(args, name))]
        path = os.pathsep.join([str(H.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def work(self, name: str) -> dict[str, Any] | None:
        """None if the process did not live to answer."""
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(bench: Bench) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints
    for line in sys.stdin:
        print(json.dumps(bench.work(line.strip())), file=answers, flush=True)


def compare(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Every piece of work on both sides; the file grows with each, so that a stopped run counts."""
    result |= {"works": {}, "torch.mm": [], "disturbed": []}
    works = [n for n in WORKS if not args.only or any(word in n for word in args.only)]
    works = [n for n in works if not any(word in n for word in args.skip)]
    counter = Worker(args, "ours", sys.executable)  # apart: it would count in the peak memory
    result |= counter.work("about") or {}
    counter.close()
    ours, peer = Worker(args, "ours", sys.executable), Worker(args, "spconv", args.peer)
    for name in works:
        found = rounds(name, args.rounds, ours, peer if name in SHARED else None)
        result["torch.mm"] += found["probes"]
        result["works"][name] = found
        describe(name, found, result)
        if not found["rounds"]:
            result["disturbed"].append(name)
        H.write(args.json, result)
    for worker in (ours, peer):
        worker.close()


def rest() -> None:
    """Threads of an OpenMP runtime spin for 0.2 s after their work, on a core that the next needs."""
    time.sleep(0.5)


def rounds(name: str, wanted: int, ours: Worker, peer: Worker | None) -> dict[str, Any]:
    """Rounds of a piece of work until enough of them count; if none does, all are shown."""
    probes, kept, discarded = [H.matrix_rate()], [], []
    while len(kept) < wanted and len(kept) + len(discarded) < 2 * wanted:
        rest()
        theirs = peer.work(name) if peer else None
        rest()
        mine = ours.work(name)
        if mine is None:
            raise SystemExit(f"ours did not survive {name}")
        narrow = H.matrix_rate(torch.bfloat16) if "bfloat16" in name else None
        rest()
        probes.append(H.matrix_rate())
        calm = max(probes[-2:]) <= MOVED * min(probes[-2:])
        (kept if calm else discarded).append((mine, theirs, sum(probes[-2:]) / 2, narrow))
    shown = kept or discarded

    def middle(values: list[float]) -> float:
        return statistics.median(values)

    found: dict[str, Any] = {"rounds": len(kept), "probes": probes, "ours": dict(shown[-1][0])}
    found["ours"]["median"] = middle([mine["median"] for mine, *_ in shown])
    found["spconv"] = None
    if shown[-1][1]:
        found["spconv"] = shown[-1][1] | {"median": middle([t["median"] for _, t, *_ in shown])}
        found["ratio"] = middle([mine["median"] / t["median"] for mine, t, *_ in shown])
    found["torch.mm"] = middle([rate for *_, rate, _ in shown])
    found["torch.mm bfloat16"] = middle([n for *_, n in shown]) if shown[-1][3] else None
    return found


def describe(name: str, found: dict[str, Any], result: dict[str, Any]) -> None:
    mine, theirs = found["ours"], found["spconv"]
    line = f"{name:34}{mine['median']:9.1f} ms"
    if theirs:
        line += f"  spconv {theirs['median']:8.1f}  {found['ratio']:5.2f} x"
    else:
        line += " " * 26
    work = mine.get("gigaflops")
    if name.startswith("net"):
        work = result["gigaflops"] * (3 if name == STEP else 1)
    if work:
        rate = found["torch.mm bfloat16"] or found["torch.mm"]
        found["of torch.mm"] = 1e3 * work / mine["median"] / rate
        line += f"  {found['of torch.mm']:4.0%} of {rate:.0f} GFLOP/s"
    if "rss" in mine:
        line += f"  peak {mine['rss']} MB" + (f" of {theirs['rss']}" if theirs else "")
    print(line + "  DISTURBED" * (not found["rounds"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", choices=("frame", "street"), default="frame")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="that must count")
    parser.add_argument("--rows", type=int, default=0, help="of the scene; 0: all")
    parser.add_argument("--json", type=Path, default=Path("out/bench_cpu.json"))
    parser.add_argument("--only", nargs="*", default=[], help="works with one of these words")
    parser.add_argument("--skip", nargs="*", default=[], help="works with one of these words")
    parser.add_argument("--peer", default=sys.executable, help="an interpreter that has spconv")
    parser.add_argument("--growth", type=Path, help="time 10k to 2M voxels instead, into a picture")
    parser.add_argument("--library", choices=("ours", "spconv"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    coords = H.scene(args.scene)
    coords = coords[: args.rows or None].contiguous()
    if args.library:
        serve(Bench(args.library, coords, args.repeats))
        return
    result = {"provenance": H.provenance(), "scene": args.scene, "rows": len(coords)}
    if args.growth:
        sys.path.insert(0, str(H.ROOT))
        result["growth"] = growth(coords, args.repeats, args.growth)
    else:
        compare(args, result)
        rates = result["torch.mm"]
        print(f"torch.mm {min(rates):.0f} to {max(rates):.0f} GFLOP/s")
        print(f"disturbed: {', '.join(result['disturbed']) or 'nothing'}")
    H.write(args.json, result)


if __name__ == "__main__":
    main()
