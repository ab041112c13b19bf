"""Sparse convolution on the CPU: ours, spconv 2.3.8 and torch.mm side by side in one run.

    python bench/bench_cpu.py [--scene frame|street] [--threads 2] [--json out.json] [--rows N]
                              [--peer PYTHON] [--growth growth.png]

Each library runs in a process of its own, with the same network code: `sparse3d.nn` stands where
`spconv.pytorch` does. torch.mm is probed before, in the middle and after; a run whose probes differ by
more than 10 % is marked as disturbed, take it again. `--peer` names an interpreter that has spconv.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _harness as H
import torch
from torch import nn

ENCODER, DECODER, STEM = (32, 64, 128, 256), (256, 128, 96, 96), 32
WIDTHS = ((4, 32), (32, 32), (64, 64), (96, 96), (128, 128), (256, 256))
TRAINED = (32, 64, 128)


def network(sp: Any) -> nn.Module:
    """MinkUNet42 in the words that both libraries share."""

    def unit(conv: nn.Module, width: int, relu: bool = True) -> list[nn.Module]:
        return [conv, nn.BatchNorm1d(width), *([nn.ReLU()] if relu else [])]

    def subm(a: int, b: int, key: str, size: int = 3) -> nn.Module:
        return sp.SubMConv3d(a, b, size, bias=False, indice_key=f"{key}k{size}")

    class Block(nn.Module):
        def __init__(self, a: int, b: int, key: str) -> None:
            super().__init__()
            self.net = sp.SparseSequential(
                *unit(subm(a, b, key), b), *unit(subm(b, b, key), b, relu=False)
            )
            one = unit(subm(a, b, key, 1), b, relu=False)
            self.skip = sp.SparseSequential(*one) if a != b else None

        def forward(self, x: Any) -> Any:
            y = self.net(x)
            side = x if self.skip is None else self.skip(x)
            return y.replace_feature(torch.relu(y.features + side.features))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = sp.SparseSequential(
                *unit(subm(4, STEM, "l0"), STEM), *unit(subm(STEM, STEM, "l0"), STEM)
            )
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            self.left, self.right = nn.ModuleList(), nn.ModuleList()
            width, skips = STEM, [STEM]
            for i, out in enumerate(ENCODER):
                down = sp.SparseConv3d(width, width, 2, 2, bias=False, indice_key=f"d{i}")
                self.down.append(sp.SparseSequential(*unit(down, width)))
                key = f"l{i + 1}"
                blocks = nn.Sequential(Block(width, out, key), Block(out, out, key))
                self.left.append(blocks)
                width = out
                skips.append(out)
            for i, out in enumerate(DECODER):
                up = sp.SparseInverseConv3d(width, out, 2, f"d{3 - i}", bias=False)
                self.up.append(sp.SparseSequential(*unit(up, out)))
                key, joined = f"l{3 - i}", out + skips[3 - i]
                self.right.append(nn.Sequential(Block(joined, out, key), Block(out, out, key)))
                width = out
            self.head = nn.Linear(width, 19)

        def forward(self, x: Any) -> torch.Tensor:
            kept = [self.stem(x)]
            for down, blocks in zip(self.down, self.left, strict=True):
                kept.append(blocks(down(kept[-1])))
            y = kept.pop()
            for up, blocks in zip(self.up, self.right, strict=True):
                y = up(y)
                y = blocks(y.replace_feature(torch.cat([y.features, kept.pop().features], 1)))
            return self.head(y.features)

    torch.manual_seed(0)
    return Net()


class Bench:
    """One library on one scene."""

    def __init__(self, library: str, coords: torch.Tensor, repeats: int) -> None:
        self.ours = library == "ours"
        self.sp = importlib.import_module("sparse3d.nn" if self.ours else "spconv.pytorch")
        if not self.ours:
            ops = importlib.import_module("spconv.pytorch.ops")
            ops.get_current_stream = lambda: 0  # its backward on a CPU build of torch
        self.coords, self.repeats = coords, repeats
        self.shape = [int((v + 16) // 16 * 16) for v in coords[:, 1:].amax(0)]
        self.result: dict[str, Any] = {"mm": []}

    def probe(self) -> None:
        self.result["mm"].append(H.matrix_rate())

    def tensor(self, features: torch.Tensor) -> Any:
        return self.sp.SparseConvTensor(features, self.coords, self.shape, 1)

    def time(self, name: str, run: Any) -> None:
        self.result[name] = H.milliseconds(run, self.repeats, 1)
        print(f"  {name}: {self.result[name]['median']:.1f} ms", file=sys.stderr, flush=True)

    def whole(self) -> None:
        net = network(self.sp)
        x = torch.randn(len(self.coords), 4)
        net.eval()
        with torch.no_grad():
            self.time("net eval float32", lambda: net(self.tensor(x)))
            self.result["rss eval"] = H.peak_rss()
            if self.ours:
                half = network(self.sp).bfloat16().eval()
                self.time("net eval bfloat16", lambda: half(self.tensor(x.bfloat16())))
        net.train()

        def step() -> None:
            net.zero_grad(set_to_none=True)
            net(self.tensor(x)).sum().backward()

        self.time("net training step", step)
        self.result["rss training"] = H.peak_rss()

    def maps(self) -> None:
        find = self._find_ours if self.ours else self._find_spconv
        coords, shape, levels = self.coords, list(self.shape), []
        for level in range(5):
            levels.append((coords, shape))
            self.time(f"map level {level}", lambda c=coords, s=shape: find(c, s, 3, True))
            if level < 4:
                coords = find(coords, shape, 2, False).contiguous()
                shape = [v // 2 for v in shape]

        def everything() -> None:
            for level, (c, s) in enumerate(levels):
                find(c, s, 3, True)
                if level < 4:
                    find(c, s, 2, False)

        self.time("maps all", everything)

    @staticmethod
    def _find_ours(coords: torch.Tensor, shape: list[int], size: int, subm: bool) -> torch.Tensor:
        from sparse3d.geometry import Geometry
        from sparse3d.ops import kernel_map

        if subm:
            return kernel_map.submanifold(coords, (size,) * 3, (1,) * 3)[0]
        geometry = Geometry((size,) * 3, (size,) * 3, (0,) * 3, (1,) * 3)
        return kernel_map.footprint(coords, geometry, [v // size for v in shape])[0]

    def _find_spconv(
        self, coords: torch.Tensor, shape: list[int], size: int, subm: bool
    ) -> torch.Tensor:
        ops = importlib.import_module("spconv.pytorch.ops")
        algo = importlib.import_module("spconv.core").ConvAlgo.Native
        step, pad = (1, 1) if subm else (size, 0)
        lists = ([size] * 3, [step] * 3, [pad] * 3, [1] * 3, [0] * 3)
        return ops.get_indice_pairs(coords, 1, shape, algo, *lists, subm, False)[0]

    def layers(self) -> None:
        x = self.tensor(torch.randn(len(self.coords), 4))
        if self.ours:
            pairs = x.coordinates.submanifold((3,) * 3, (1,) * 3)
            self.result["rows"], self.result["pairs"] = len(self.coords), len(pairs)
        for a, b in WIDTHS:
            layer = self.sp.SubMConv3d(a, b, 3, bias=False, indice_key="a")
            x = self.tensor(torch.randn(len(self.coords), a))
            with torch.no_grad():
                x.indice_dict = layer(x).indice_dict
                self.time(f"layer {a} {b}", lambda layer=layer, x=x: layer(x))
                if self.ours and a >= 32:
                    half = x.replace_feature(x.features.bfloat16())
                    narrow = self.sp.SubMConv3d(a, b, 3, bias=False, indice_key="a").bfloat16()
                    self.time(f"layer {a} {b} bfloat16", lambda n=narrow, h=half: n(h))
            if a == b and a in TRAINED:
                x = x.replace_feature(x.features.requires_grad_())
                grad = torch.randn(len(self.coords), b)
                run = lambda layer=layer, x=x, grad=grad: layer(x).features.backward(grad)  # noqa: E731
                self.time(f"layer {a} {b} forward + backward", run)

    def run(self) -> dict[str, Any]:
        self.probe()
        self.whole()
        self.probe()
        self.maps()
        self.layers()
        self.probe()
        if self.ours:
            self.result["mm bfloat16"] = H.matrix_rate(torch.bfloat16)
            library = importlib.import_module("sparse3d.cpu._library")
            self.result["paths"] = library.paths()
        return self.result


def growth(coords: torch.Tensor, repeats: int, picture: Path | None) -> dict[str, Any]:
    """Nanoseconds a voxel from 10 thousand to 2 million voxels: map and a 32 -> 32 layer."""
    import sparse3d.nn as sp

    found: dict[str, Any] = {"rows": [], "map": [], "layer": []}
    layer = sp.SubMConv3d(32, 32, 3, bias=False)
    for rows in (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000):
        c = H.grow(coords, rows)
        shape = [int(v) + 1 for v in c[:, 1:].amax(0)]
        x = sp.SparseConvTensor(torch.randn(rows, 32), c, shape, 1)
        with torch.no_grad():
            per = 1e6 / rows
            run = lambda c=c, s=shape: Bench._find_ours(c, s, 3, True)  # noqa: E731
            found["map"].append(H.milliseconds(run, repeats, 1)["best"] * per)
            layer(x)
            found["layer"].append(H.milliseconds(lambda x=x: layer(x), repeats, 1)["best"] * per)
        found["rows"].append(rows)
        print(
            f"  {rows} voxels: map {found['map'][-1]:.0f}, layer {found['layer'][-1]:.0f} ns each"
        )
    if picture is not None:
        plot(found, picture)
    return found


def plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name in ("map", "layer"):
        axes.plot(found["rows"], found[name], "o-", label=name)
    axes.set(xscale="log", xlabel="voxels", ylabel="ns per voxel", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def apart(args: argparse.Namespace, library: str, python: str) -> dict[str, Any] | None:
    """Measure one library in a process of its own; None if it does not run there."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [python, __file__, "--library", library, "--json", str(out)]
        for name in ("scene", "threads", "repeats", "rows"):
            command += [f"--{name}", str(getattr(args, name))]
        print(f"{library}:", file=sys.stderr)
        done = subprocess.run(command, check=False)
        return json.loads(out.read_text()) if done.returncode == 0 else None


def report(result: dict[str, Any]) -> None:
    ours, peer = result["ours"], result.get("spconv") or {}
    probes = [rate for part in (ours, peer) for rate in part.get("mm", [])]
    result["disturbed"] = max(probes) > 1.1 * min(probes)
    rate = sum(ours["mm"]) / len(ours["mm"])
    print(
        f"torch.mm {min(probes):.0f} to {max(probes):.0f} GFLOP/s"
        + result["disturbed"] * ": DISTURBED"
    )
    print(f"{'':36}{'ours':>10}{'spconv':>10}{'ratio':>7}{'of mm':>7}")
    for name, value in ours.items():
        if not isinstance(value, dict):
            continue
        mine, theirs = value["median"], peer.get(name, {}).get("median")
        line = f"{name:36}{mine:10.1f}"
        line += f"{theirs:10.1f}{mine / theirs:7.2f}" if theirs else " " * 17
        if name.startswith("layer") and name.endswith(name.split()[2]):
            a, b = map(int, name.split()[1:3])
            line += f"{2e-6 * ours['pairs'] * a * b / mine / rate:7.0%}"
        print(line)
    for name in ("rss eval", "rss training"):
        print(f"{name + ', MB':36}{ours[name]:10}{peer.get(name, ''):>10}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", choices=("frame", "street"), default="frame")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=0, help="of the scene; 0: all")
    parser.add_argument("--json", type=Path, default=Path("out/bench_cpu.json"))
    parser.add_argument("--peer", default=sys.executable, help="an interpreter that has spconv")
    parser.add_argument("--growth", type=Path, help="also time 10k to 2M voxels, into this picture")
    parser.add_argument("--library", choices=("ours", "spconv"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    coords = H.scene(args.scene)
    coords = coords[: args.rows or None].contiguous()
    if args.library:
        H.write(args.json, Bench(args.library, coords, args.repeats).run())
        return
    result = {"provenance": H.provenance(), "scene": args.scene, "rows": len(coords)}
    result["spconv"] = apart(args, "spconv", args.peer)
    ours = apart(args, "ours", sys.executable)
    if ours is None:
        raise SystemExit("ours did not run")
    result["ours"] = ours
    report(result)
    if args.growth:
        result["growth"] = growth(coords, args.repeats, args.growth)
    H.write(args.json, result)


if __name__ == "__main__":
    main()
