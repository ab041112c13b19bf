"""What the CPU benches share: the scenes, the clock, the torch.mm probe, where a result was taken."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
FRAME = "data/lidar/kitti_spvnas_000000.bin"
VOXEL = 0.05


def shared() -> Path:
    """The shared data beside the repository, or where SPARSE3D_SHARED says."""
    return Path(os.environ.get("SPARSE3D_SHARED") or ROOT.parent / "shared")


def voxels(points: np.ndarray, size: float = VOXEL) -> torch.Tensor:
    """int32 (batch, z, y, x) from 0 on, in order of first occurrence."""
    cells = np.floor(points[:, :3].astype(np.float64) / size).astype(np.int64)
    cells -= cells.min(0)
    cells = cells[np.sort(np.unique(cells, axis=0, return_index=True)[1])]
    return torch.tensor(np.pad(cells, ((0, 0), (1, 0))), dtype=torch.int32)


def scene(name: str) -> torch.Tensor:
    """Sites at 0.05 m of a real scan ("frame") or of a simulated one ("street")."""
    if name == "frame":
        path = shared() / FRAME
        if not path.is_file():
            raise SystemExit(f"no {FRAME} in the shared data; name their place in SPARSE3D_SHARED")
        return voxels(np.fromfile(path, np.float32).reshape(-1, 4))
    from sparse3d.data.simulate import simulate

    return voxels(np.asarray(simulate(seed=0).points))


def grow(coords: torch.Tensor, rows: int) -> torch.Tensor:
    """A scene of so many rows and about as many neighbours each: the rows of a sector about the
    middle (the first ones of a scan are its uppermost ring, which has half as many), or copies side
    by side along x."""
    if rows <= len(coords):
        y, x = (coords[:, 2:] - coords[:, 2:].median(0).values).float().T
        sector = torch.atan2(y, x).argsort(stable=True)[:rows]
        return coords[sector.sort().values].contiguous()
    width = int(coords[:, 3].max()) + 3
    copies = -(-rows // len(coords))
    moved = [coords + torch.tensor([0, 0, 0, copy * width]).int() for copy in range(copies)]
    return torch.cat(moved)[:rows].contiguous()


def milliseconds(run: Callable[[], Any], repeats: int = 7, warm: int = 2) -> dict[str, float]:
    for _ in range(warm):
        run()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - begin))
    return {"median": statistics.median(taken), "best": min(taken)}


def matrix_rate(dtype: torch.dtype = torch.float32, size: int = 2048) -> float:
    """GFLOP/s of torch.mm: what the machine gives at this moment."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    return 2 * size**3 / milliseconds(lambda: torch.mm(a, b), 5, 2)["best"] / 1e6


def provenance() -> dict[str, Any]:
    """Machine, versions and commit."""
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return {
        "machine": model,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": git.stdout.strip(),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def peak_rss() -> int:
    """Megabytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
