"""Traffic and arithmetic of the Metal convolution, from a plan's tile lists alone, and predicted
times.

    python bench/metal_model.py SCAN.bin            # KITTI layout: float32 x, y, z, intensity

PREDICTIONS: no Mac ran this. Bytes and arithmetic are the model's, which
tests/metal/test_traffic.py holds against the
emulator's meter; times are a roofline with published bandwidths and float rates at full speed.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import metal_emu

from sparse3d import _registry
from sparse3d.kernel_map import Coordinates, KernelMap

TILE = 64
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


@dataclass(frozen=True)
class Layer:
    """A submanifold or strided layer: channels, element size."""

    cin: int
    cout: int
    size: int

    @property
    def columns(self) -> int:
        """Output channels a threadgroup makes; as sparse3d/metal/conv.py chooses."""
        return next((n for n in (16, 32, 64) if self.cout <= n), 128)

    @property
    def tile_rows(self) -> int:
        return 32 if self.columns == 128 else 64


@dataclass(frozen=True)
class Cost:
    """Device bytes with the lanes of a simdgroup merged, and multiply-accumulates issued."""

    nbytes: float
    macs: int


def tile_counts(neighbours: np.ndarray, rows: np.ndarray, tile_rows: int) -> np.ndarray:
    """Pairs of each (tile, tap), from the neighbour table [M, K] and the plan's row order."""
    rows = rows.reshape(-1, tile_rows)
    present = np.where(rows[..., None] >= 0, neighbours[rows] >= 0, False)
    return present.sum(1)


def minimum_bytes(counts: np.ndarray, num_out: int, layer: Layer) -> int:
    """The least a tiled kernel can move: gathered rows, each present tap's weight once a tile,
    outputs, map entries."""
    pairs, slots = int(counts.sum()), int((counts > 0).sum())
    elements = pairs * layer.cin + slots * layer.cin * layer.cout + num_out * layer.cout
    return elements * layer.size + 4 * pairs


def bound_bytes(pairs: int, num_in: int, num_out: int, taps: int, layer: Layer) -> int:
    """The layer's bound: every input, output, weight and pair once."""
    elements = num_in * layer.cin + num_out * layer.cout + taps * layer.cin * layer.cout
    return elements * layer.size + 4 * pairs


def predicted(counts: np.ndarray, num_out: int, layer: Layer) -> Cost:
    """What `sp_conv` does for these tiles."""
    passes = -(-layer.cout // layer.columns)
    pairs, slots = int(counts.sum()), int((counts > 0).sum())
    tiles = len(counts)
    simds = layer.tile_rows * layer.columns // 512
    elements = pairs * layer.cin * passes + slots * layer.cin * layer.cout + num_out * layer.cout
    # Pair lists once a threadgroup; slot words and row numbers once a simdgroup.
    lists = passes * (
        5 * pairs + simds * 24 * slots + tiles * (4 * layer.tile_rows * min(simds, 4) + 16 * simds)
    )
    macs = int((-(-counts // 8)).sum()) * 8 * layer.cin * passes * layer.columns
    return Cost(elements * layer.size + lists, macs)


def naive_bytes(pairs: int, num_out: int, taps: int, layer: Layer) -> float:
    """One thread an output scalar: each simdgroup of 32 channels reads a row and its weights for
    itself."""
    elements = pairs * layer.cin * layer.cout * (1 + 1 / 32) + num_out * layer.cout
    return elements * layer.size + 4 * num_out * taps * layer.cout / 32


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scan", type=Path)
    parser.add_argument("--voxel", type=float, default=0.05)
    arguments = parser.parse_args()
    pairs, rows = plan_of(read_voxels(arguments.scan, arguments.voxel))
    print("\n".join(table(pairs, rows)))


if __name__ == "__main__":
    main()
