"""Traffic and arithmetic of the Metal kernels, and predicted times of the convolution.

    python bench/metal_model.py SCAN.bin               # KITTI layout: float32 x, y, z, intensity
    python bench/metal_model.py SCAN.bin --network     # every layer of MinkUNet42 and its gradients
    python bench/metal_model.py SCAN.bin --launches    # what the emulator counts, on a piece of it

`--json FILE` keeps the records of the second and the third. PREDICTIONS: no Mac ran this. Bytes and
arithmetic of the first two are a model's, from tile lists alone, which tests/metal/test_traffic.py
holds against the emulator's meter; times are a roofline with published bandwidths and float rates at
full speed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import _metal_launches
import _metal_network
import metal_emu
from _harness import provenance, write
from _metal_cost import (
    Layer,
    bound_bytes,
    minimum_bytes,
    naive_bytes,
    predicted,
    tile_counts,
)

from sparse3d import _registry
from sparse3d.kernel_map import Coordinates, KernelMap

GPUS = {
    "M1": (68e9, 2.6e12),
    "M2": (100e9, 3.6e12),
    "M3": (100e9, 4.1e12),
    "M4": (120e9, 4.3e12),
    "M5": (153e9, 4.2e12),
    "M1 Max": (400e9, 10.4e12),
    "M4 Max": (546e9, 18e12),
}
"""Bytes and float32 operations a second as published; M1..M5 with the base number of cores."""
SIZES = {"float32": 4, "float16": 2}


def microseconds(nbytes: float, macs: float, gpu: str) -> float:
    bandwidth, rate = GPUS[gpu]
    return max(nbytes / bandwidth, 2 * macs / rate) * 1e6


def read_voxels(file: Path, voxel: float) -> torch.Tensor:
    """Voxels of a KITTI scan as (0, z, y, x), in the order of first occurrence."""
    points = np.fromfile(file, np.float32).reshape(-1, 4)[:, 2::-1]
    cells = np.floor(points / np.float32(voxel)).astype(np.int32)
    _, first = np.unique(cells, axis=0, return_index=True)
    cells = cells[np.sort(first)]
    return torch.from_numpy(np.pad(cells, ((0, 0), (1, 0))))


def plan_of(voxels: torch.Tensor) -> tuple[KernelMap, np.ndarray]:
    """The submanifold map of a set of voxels and the row order that the plan kernels give it."""
    with metal_emu.installed(check=False), _registry.force("metal"):
        sites = Coordinates(voxels, None, 1)
        sites.trust_distinct()
        pairs = sites.submanifold([3, 3, 3], [1, 1, 1])
        return pairs, pairs.plan()[5].numpy()


def table(pairs: KernelMap, rows: np.ndarray) -> list[str]:
    """Lines of the table."""
    neighbours, n, count = pairs.neighbours().numpy(), pairs.num_out, len(pairs)
    taps = pairs.num_taps
    lines = [
        f"{n} voxels, {count / n:.2f} pairs a voxel. Times in us are PREDICTED, not measured.",
        "layer, tile         |  MB  x min x bound | flop/B of bound | mac issued/useful | "
        + " ".join(f"{gpu:>7}" for gpu in GPUS)
        + " | one thread a scalar: MB  M1",
    ]
    for name, size in (("float", 4), ("half", 2)):
        for channels in ((32, 32), (64, 64), (128, 128)):
            layer = Layer(*channels, size)
            counts = tile_counts(neighbours, rows, layer.tile_rows)
            cost = predicted(counts, n, layer)
            useful = count * layer.cin * layer.cout
            bound = bound_bytes(count, n, n, taps, layer)
            naive = naive_bytes(count, n, taps, layer)
            times = " ".join(f"{microseconds(cost.nbytes, cost.macs, gpu):7.0f}" for gpu in GPUS)
            lines.append(
                f"{name:5} {layer.cin:3}->{layer.cout:3} {layer.tile_rows:4} | "
                f"{cost.nbytes / 1e6:5.1f} "
                f"{cost.nbytes / minimum_bytes(counts, n, layer):5.2f} "
                f"{cost.nbytes / bound:6.2f} | "
                f"{2 * useful / cost.nbytes:6.1f} {2 * useful / bound:8.1f} | "
                f"{cost.macs / useful:17.2f} | "
                f"{times} | {naive / 1e6:12.0f} "
                f"{microseconds(naive, useful, 'M1'):10.0f}"
            )
    return lines


def network_records(voxels: torch.Tensor) -> list[dict[str, Any]]:
    """Layers of MinkUNet42 with predicted microseconds of a forward pass, and those of one thread a
    scalar."""
    records = []
    for row, one, cost in _metal_network.records(voxels):
        taps, size = one.sizes[2], SIZES[row["dtype"]]
        scalar = naive_bytes(one.num_pairs, one.sizes[1], taps, Layer(one.cin, one.cout, size))
        row |= {f"{gpu} us": round(microseconds(cost.total, cost.macs, gpu), 1) for gpu in GPUS}
        row["scalar MB"] = round(scalar / 1e6, 1)
        row["scalar M1 us"] = round(microseconds(scalar, one.useful, "M1"), 1)
        records.append(row)
    return records


def lines_of(records: list[dict[str, Any]]) -> list[str]:
    """Records under their names."""
    names = list(records[0])
    table = [names, *([f"{row[name]:,}" if isinstance(row[name], (int, float)) else row[name]
                       for name in names] for row in records)]  # fmt: skip
    widths = [max(len(line[i]) for line in table) for i in range(len(names))]
    return [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in table
    ]


def page_lines(records: list[dict[str, Any]], dtype: str = "float16") -> list[str]:
    """The table of docs/metal.md: flop per byte of each layer beside its bound."""
    head = (
        "layer",
        "channels",
        "alike",
        "bound",
        "forward",
        "dx",
        "dw",
        "issued / useful",
        "M1 us",
    )
    lines = [f"| {' | '.join(head)} |", f"|--|--|{'--:|' * (len(head) - 2)}"]
    names = ("layer", "channels", "alike", "bound", "flop/B", "dx flop/B", "dw flop/B", "issued")
    for row in records:
        if row["dtype"] == dtype:
            cells = [*(row[name] for name in names), f"{row['M1 us']:,.0f}"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


TEXTS = {
    "network": (
        "Metal: traffic of MinkUNet42 by layer, modelled",
        "Every layer of MinkUNet42 on a KITTI frame at 0.05 m, forward, gradient to the input (dx) "
        "and to the weight (dw): bytes that the kernels ask memory for, flop per byte beside the "
        "layer's bound (every input, output, weight and pair once), multiply-accumulates issued "
        "over useful ones. A model of tile lists, held against the emulator's meter; times of the "
        "forward pass are predicted from published rates: no Mac has measured them. Scalar: kernels "
        "of one thread an output scalar.",
    ),
    "launches": (
        "Metal: what a call's launches move, metered",
        "Counted by the emulator on a piece of a KITTI frame: device bytes (lanes of a simdgroup "
        "that read one address together count once), atomics, barriers, threadgroup memory of a "
        "group and bytes moved in it, multiply-accumulates.",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scan", type=Path)
    parser.add_argument("--voxel", type=float, default=0.05)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--network", action="store_const", const="network", dest="what")
    what.add_argument("--launches", action="store_const", const="launches", dest="what")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    voxels = read_voxels(arguments.scan, arguments.voxel)
    if arguments.what is None:
        print("\n".join(table(*plan_of(voxels))))
        return
    make = {"network": network_records, "launches": _metal_launches.records}[arguments.what]
    records = make(voxels)
    print("\n".join(lines_of(records)))
    if arguments.json:
        title, about = TEXTS[arguments.what]
        origin = {k: v for k, v in provenance().items() if k not in ("machine", "threads")}
        command = f"python bench/metal_model.py SCAN.bin --{arguments.what}"
        result = {"title": title, "about": about, "provenance": origin | {"command": command}}
        write(arguments.json, result | {"results": records})


if __name__ == "__main__":
    main()
