"""What is large: time and memory for each voxel, and whether sampled results are right.

    python bench/bench_scale.py CASE... [--json bench/results/scale.json] [--limit-gb 16] [--scale 1]

Cases, each in a process of its own whose memory is limited (an allocation beyond it fails):

| case | what |
|---|---|
| outputs | 20 M voxels of a height field, 3 x 3 x 3, C 16 -> 112: 2.24e9 outputs; both gradients |
| grid | 300 k voxels in a grid of 2^40 cells: submanifold, strided and inverse layer; both gradients |
| batch | 100 k samples of two to four voxels: the same layers, global pools, decompose |
| kernel | an 11 x 11 x 11 kernel at 200 k voxels, C 8 -> 8; both gradients |
| channels | C 512 -> 512, 3 x 3 x 3, at 40 k voxels; both gradients |

`--scale 0.01` runs a hundredth of the voxels. Sampled rows are recomputed in float64 from the definition.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import _harness as H
import torch

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, decompose

SAMPLED = 64


class Steps:
    """Progress on stderr; seconds and peak memory of each step."""

    def __init__(self, voxels: int) -> None:
        self.voxels, self.taken, self.mark = voxels, {}, time.perf_counter()
        self.base = H.peak_rss()

    def done(self, name: str) -> None:
        now = time.perf_counter()
        peak = H.peak_rss()
        self.taken[name] = {
            "seconds": round(now - self.mark, 3),
            "ns_per_voxel": round(1e9 * (now - self.mark) / self.voxels, 1),
            "peak_mb_so_far": peak,
        }
        print(f"  {name:<22}{now - self.mark:9.2f} s   peak {peak} MB", file=sys.stderr, flush=True)
        self.mark = time.perf_counter()


def height_field(rows: int) -> torch.Tensor:
    """One site over every cell of a square, as ground and walls have it: int32 [rows, 4]."""
    side = round(rows**0.5)
    cell = torch.arange(side * side, dtype=torch.int32)
    y, x = cell // side, cell % side
    z = (20 * torch.sin(y * 0.011) * torch.cos(x * 0.007) + 40 + (x // 97 % 5) * 3).int()
    return torch.stack([torch.zeros_like(cell), z, y, x], 1)


def clusters(rows: int, extent: list[int], batch: int = 1) -> torch.Tensor:
    """Blobs of about forty sites anywhere in a grid; distinct, int32 [rows, 4]."""
    count = rows // 40 + 1
    high = torch.tensor(extent)
    middle = (torch.rand(count, 3, dtype=torch.float64) * (high - 16)).long() + 8
    near = torch.randint(-3, 4, (count, 64, 3))
    sites = (middle[:, None] + near).reshape(-1, 3)
    sample = torch.randint(0, batch, (count,)).repeat_interleave(64)[:, None]
    every = torch.unique(torch.cat([sample, sites], 1), dim=0)
    return every[torch.randperm(len(every))[:rows]].int()


class Sites:
    """Rows by position: sorted keys, not our table."""

    def __init__(self, indices: torch.Tensor) -> None:
        self.indices = indices
        self.low = indices.amin(0).long() - 16
        self.span = indices.amax(0).long() + 16 - self.low + 1
        assert float(self.span.double().prod()) < 2**62
        self.ordered, self.place = torch.sort(self.keys(indices))

    def keys(self, coords: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(coords), dtype=torch.int64)
        for axis in range(4):
            out = out * self.span[axis] + (coords[:, axis].long() - self.low[axis])
        return out

    def moved(self, rows: torch.Tensor, offset: list[int]) -> torch.Tensor:
        """The row at `indices[rows] + offset`, or -1."""
        keys = self.keys(self.indices[rows].long() + torch.tensor([0, *offset]))
        at = torch.searchsorted(self.ordered, keys).clamp_(max=len(self.ordered) - 1)
        return torch.where(self.ordered[at] == keys, self.place[at], -1)


def check_submanifold(
    x: SparseConvTensor,
    layer: spnn.SubMConv3d,
    out: torch.Tensor,
    grad: torch.Tensor,
    to_x: torch.Tensor,
    to_w: torch.Tensor,
) -> float:
    """Worst relative error of sampled outputs, input gradients and of one tap's weight gradient."""
    rows, sites = torch.randint(0, len(x), (SAMPLED,)), Sites(x.indices)
    size = layer.kernel_size[0]
    weight = layer.weight.detach().double().reshape(layer.out_channels, size**3, -1)
    expected = torch.zeros(SAMPLED, layer.out_channels, dtype=torch.float64)
    back = torch.zeros(SAMPLED, layer.in_channels, dtype=torch.float64)
    for tap in range(size**3):
        offset = [tap // size**2, tap // size % size, tap % size]
        offset = [step - size // 2 for step in offset]
        source = sites.moved(rows, offset)
        hit = source >= 0
        expected[hit] += x.features[source[hit]].detach().double() @ weight[:, tap].t()
        target = sites.moved(rows, [-step for step in offset])
        hit = target >= 0
        back[hit] += grad[target[hit]].double() @ weight[:, tap]
    centre = torch.zeros(layer.out_channels, layer.in_channels, dtype=torch.float64)
    for first in range(0, len(x), 1 << 16):
        part = slice(first, first + (1 << 16))
        centre += grad[part].double().t() @ x.features[part].detach().double()
    found = to_w.reshape(layer.out_channels, size**3, -1)[:, size**3 // 2]
    errors = [
        (left.detach().double() - right).abs().max() / right.abs().max()
        for left, right in ((out[rows], expected), (to_x[rows], back), (found, centre))
    ]
    return float(max(errors))


def submanifold(indices: torch.Tensor, c_in: int, c_out: int, size: int) -> dict[str, Any]:
    steps = Steps(len(indices))
    shape = [int(n) for n in indices[:, 1:].amax(0) + 1]
    x = SparseConvTensor(torch.randn(len(indices), c_in), indices, shape, 1)
    steps.done("check and table")
    layer = spnn.SubMConv3d(c_in, c_out, size, bias=False)
    pairs = len(spnn.prepare(layer, x).coordinates.submanifold([size] * 3, [1] * 3))
    steps.done("kernel map")
    x.features.requires_grad_()
    out = layer(x).features
    steps.done("forward")
    grad = out.detach()  # half the sum of squares; a tensor of its own would not fit beside it
    to_x, to_w = torch.autograd.grad(out, (x.features, layer.weight), grad)
    steps.done("both gradients")
    peak = H.peak_rss()
    error = check_submanifold(x, layer, out.detach(), grad, to_x, to_w)
    steps.done("sampled check")
    return {
        "voxels": len(indices), "pairs": pairs, "outputs": out.numel(), "c": [c_in, c_out],
        "kernel": size, "peak_mb": peak, "bytes_per_voxel": round((peak - steps.base) * 2**20 / len(indices)),
        "worst_sampled_error": error, "steps": steps.taken,
    }  # fmt: skip


def pyramid(indices: torch.Tensor, shape: list[int], batch: int) -> dict[str, Any]:
    """Submanifold, strided and inverse layer; the same sites near the origin must give the same."""
    steps = Steps(len(indices))
    features = torch.randn(len(indices), 8)
    x = SparseConvTensor(features.requires_grad_(), indices, shape, batch)
    steps.done("check and table")
    net = spnn.SparseSequential(
        spnn.SubMConv3d(8, 16, 3, indice_key="fine"),
        spnn.SparseConv3d(16, 16, 2, 2, indice_key="down"),
        spnn.SubMConv3d(16, 16, 3, indice_key="coarse"),
        spnn.SparseInverseConv3d(16, 8, 2, "down"),
    )
    out = net(x).features
    steps.done("forward with maps")
    grads = torch.autograd.grad(out.square().sum(), [x.features, *net.parameters()])
    steps.done("gradients")
    with torch.no_grad():
        pooled = [pool(x) for pool in (spnn.SparseGlobalMaxPool(), spnn.SparseGlobalAvgPool())]
    steps.done("global pools")
    parts = list(decompose(x)) if batch > 1 else []
    steps.done("decompose")
    step = torch.tensor([0, 64, 32, 16], dtype=torch.int32)
    moved = SparseConvTensor(x.features.detach(), indices - step, None, batch)
    with torch.no_grad():
        same = torch.equal(net(moved).features, out)
    steps.done("moved by (64, 32, 16)")
    assert same, "moved sites give other numbers"
    assert all(torch.isfinite(grad).all() for grad in grads)
    assert sum(len(rows) for rows, _ in parts) in (0, len(x))
    peak = H.peak_rss()
    return {
        "voxels": len(indices), "batch": batch, "grid": shape, "pooled_rows": len(pooled[0]),
        "peak_mb": peak, "bytes_per_voxel": round((peak - steps.base) * 2**20 / len(indices)),
        "moved_gives_the_same_bytes": same, "steps": steps.taken,
    }  # fmt: skip


def batch_case(samples: int) -> dict[str, Any]:
    counts = torch.randint(2, 5, (samples,))
    sample = torch.repeat_interleave(torch.arange(samples), counts)
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    place = torch.arange(len(sample)) - first[sample]
    sites = torch.stack([sample, place + 64, place // 2 + 32, sample % 7 + 16], 1).int()
    return pyramid(sites, [80, 48, 32], samples)


def run(case: str, scale: float) -> dict[str, Any]:
    torch.manual_seed(0)

    def rows(full: int) -> int:
        return max(round(full * scale), 64)

    if case == "outputs":
        return submanifold(height_field(rows(20_000_000)), 16, 112, 3)
    if case == "grid":
        extent = [2**14, 2**13, 2**13]
        return pyramid(clusters(rows(300_000), extent), extent, 1)
    if case == "batch":
        return batch_case(rows(100_000))
    if case == "kernel":
        return submanifold(height_field(rows(200_000)), 8, 8, 11)
    return submanifold(height_field(rows(40_000)), 512, 512, 3)


CASES = ("outputs", "grid", "batch", "kernel", "channels")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit-gb", type=float, default=16)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        limit = int(options.limit_gb * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(json.dumps(run(options.cases[0], options.scale)))
        return
    results = {}
    for case in options.cases:
        print(case, file=sys.stderr, flush=True)
        flags = ["--limit-gb", str(options.limit_gb), "--scale", str(options.scale), "--here"]
        out = subprocess.run(
            [sys.executable, __file__, case, *flags], stdout=subprocess.PIPE, text=True, check=True
        )
        results[case] = json.loads(out.stdout)
    made = {
        **H.provenance(),
        "limit_gb": options.limit_gb,
        "scale": options.scale,
        "cases": results,
    }
    if options.json:
        H.write(options.json, made)
    else:
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
