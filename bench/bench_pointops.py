"""Point operators against the specialists on the CPU, in one run on one machine.

    python bench/bench_pointops.py [--threads 2] [--json out.json] [--lidar scan.bin ...]

Every row times ours and each peer that is installed on the same points (fpsample, SciPy, Open3D,
torch_cluster, pytorch3d), builds of indices included, best and median of several runs taken in
turn.
`x` is the fastest peer over ours; a row below its bound is printed as LOST. Exactness is checked
first: no number is printed for an operator whose result is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparse3d import _registry, pointops

Clouds = dict[str, torch.Tensor]
Timed = dict[str, list[float]]


def clouds(points: int, scans: list[Path]) -> Clouds:
    draw = torch.Generator().manual_seed(0)
    random = torch.rand(points, 3, generator=draw) * 10
    found = {"random": random, "sorted": random[random[:, 0].argsort()].contiguous()}
    for scan in scans:
        rows = torch.from_numpy(np.fromfile(scan, np.float32).reshape(-1, 4)[:, :3].copy())
        found[scan.stem] = rows[:points].contiguous()
    return found


def timed(runs: dict[str, Callable[[], Any]], repeats: int) -> Timed:
    """Seconds of each, taken in turn so that a busy moment hits all of them."""
    taken: Timed = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - begin)
    return taken


class Peers:
    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.absent: dict[str, str] = {}
        self.fpsample = self._optional("fpsample")
        self.tree = self._optional("scipy.spatial")
        self.open3d = self._optional("open3d")
        self.cluster = self._optional("torch_cluster")
        self.pytorch3d = self._optional("pytorch3d.ops")

    def _optional(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except Exception as error:  # a peer that does not load is left out, by name
            self.absent[name] = type(error).__name__
            print(f"# {name}: not here ({self.absent[name]})", file=sys.stderr)
            return None

    def fps(self, cloud: torch.Tensor, count: int) -> dict[str, Callable[[], Any]]:
        points = cloud.numpy()
        runs: dict[str, Callable[[], Any]] = {}
        if self.fpsample:
            line, tree = (
                self.fpsample.bucket_fps_kdline_sampling,
                self.fpsample.bucket_fps_kdtree_sampling,
            )
            if len(cloud) <= 200_000:
                vanilla = self.fpsample.fps_sampling
                runs["fpsample vanilla"] = lambda: vanilla(points, count, start_idx=0)
            height = 7 if len(cloud) <= 200_000 else 9
            runs["fpsample kd-line"] = lambda: line(points, count, h=height)
            runs["fpsample kd-tree"] = lambda: tree(points, count)
        if self.open3d:
            vector = self.open3d.utility.Vector3dVector(points.astype(np.float64))
            held = self.open3d.geometry.PointCloud(vector)
            runs["Open3D"] = lambda: held.farthest_point_down_sample(count)
        if self.cluster and len(cloud) <= 200_000:
            ratio = count / len(cloud)
            runs["torch_cluster"] = lambda: self.cluster.fps(cloud, ratio=ratio, random_start=False)
        if self.pytorch3d and len(cloud) <= 200_000:
            runs["pytorch3d"] = lambda: self.pytorch3d.sample_farthest_points(cloud[None], K=count)
        return runs

    def knn(self, query: torch.Tensor, cloud: torch.Tensor, k: int) -> dict[str, Callable[[], Any]]:
        q, p = query.numpy(), cloud.numpy()
        runs: dict[str, Callable[[], Any]] = {}
        if self.tree:
            make = self.tree.cKDTree
            runs["cKDTree"] = lambda: make(p).query(q, k, workers=self.threads)
        if self.open3d and len(cloud) <= 200_000:
            runs["Open3D"] = lambda: self._search(p, "knn_index").knn_search(self._tensor(q), k)
        if self.cluster and len(cloud) <= 200_000:
            runs["torch_cluster"] = lambda: self.cluster.knn(
                cloud, query, k, num_workers=self.threads
            )
        return runs

    def ball(
        self, query: torch.Tensor, cloud: torch.Tensor, radius: float, k: int
    ) -> dict[str, Callable[[], Any]]:
        q, p = query.numpy(), cloud.numpy()
        runs: dict[str, Callable[[], Any]] = {}
        if self.open3d:
            runs["Open3D hybrid"] = lambda: self._search(p, "hybrid_index", radius).hybrid_search(
                self._tensor(q), radius, k
            )
        if self.cluster:
            runs["torch_cluster"] = lambda: self.cluster.radius(
                cloud, query, radius, max_num_neighbors=k, num_workers=self.threads
            )
        if self.pytorch3d and len(query) <= 2000:
            runs["pytorch3d"] = lambda: self.pytorch3d.ball_query(
                query[None], cloud[None], K=k, radius=radius, return_nn=False
            )
        return runs

    def _tensor(self, points: np.ndarray) -> Any:
        return self.open3d.core.Tensor.from_numpy(points)

    def _search(self, points: np.ndarray, kind: str, *args: float) -> Any:
        search = self.open3d.core.nns.NearestNeighborSearch(self._tensor(points))
        getattr(search, kind)(*args)
        return search


def check() -> None:
    """Ours against the references, on a cut of the size that brute force can do."""
    cloud = torch.rand(4000, 3) * 3
    for name, run in (
        ("fps", lambda: pointops.furthest_point_sample(cloud[None], 300)),
        ("knn", lambda: pointops.knn(cloud[None, :500], cloud[None], 16)[1]),
        ("ball query", lambda: pointops.ball_query(cloud[None, :500], cloud[None], 0.3, 32)[1]),
    ):
        mine = run()
        with _registry.force("reference"):
            if not torch.equal(mine, run()):
                raise SystemExit(f"{name} is wrong: no numbers")


def rows(peers: Peers, found: Clouds) -> list[tuple[str, float, Callable[[], Any], dict[str, Any]]]:
    """(name, bound, ours, peers) of every row."""
    out = []
    for name, cloud in found.items():
        batch, few = cloud[None], cloud[:: max(len(cloud) // 1024, 1)][:1024].contiguous()
        out += [
            (
                f"FPS 1,024 of {len(cloud):,} {name}",
                1.0,
                lambda batch=batch: pointops.furthest_point_sample(batch, 1024),
                peers.fps(cloud, 1024),
            ),
            (
                f"kNN 16 of {len(cloud):,} queries {name}",
                1.5,
                lambda batch=batch: pointops.knn(batch, batch, 16),
                peers.knn(cloud, cloud, 16),
            ),
            (
                f"kNN 16 of 1,024 queries {name}",
                1.5,
                lambda batch=batch, few=few: pointops.knn(few[None], batch, 16),
                peers.knn(few, cloud, 16),
            ),
            (
                f"ball query 32, r = 0.5, 1,024 queries {name}",
                1.5,
                lambda batch=batch, few=few: pointops.ball_query(few[None], batch, 0.5, 32),
                peers.ball(few, cloud, 0.5, 32),
            ),
            (
                f"ball query 32, r = 0.2, {len(cloud):,} queries {name}",
                1.5,
                lambda batch=batch: pointops.ball_query(batch, batch, 0.2, 32),
                peers.ball(cloud, cloud, 0.2, 32),
            ),
        ]
    return out


def processor() -> str:
    """The model's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    return f"{found.get('model name', platform.processor())}, model {found.get('model', '?')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--million", action="store_true", help="the rows of a million points alone")
    parser.add_argument("--lidar", type=Path, nargs="*", default=[], help="KITTI scans (.bin)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    check()
    peers = Peers(args.threads)
    table = [] if args.million else rows(peers, clouds(args.points, args.lidar))
    if args.million:
        cloud = torch.rand(1_000_000, 3, generator=torch.Generator().manual_seed(1)) * 100
        batch = cloud[None]
        table += [
            (
                "FPS 1,024 of 1,000,000",
                1.0,
                lambda: pointops.furthest_point_sample(batch, 1024),
                peers.fps(cloud, 1024),
            ),
            (
                "kNN 16 of 1,000,000 queries",
                1.5,
                lambda: pointops.knn(batch, batch, 16),
                peers.knn(cloud, cloud, 16),
            ),
        ]
    results = []
    for name, bound, ours, theirs in table:
        taken = timed({"sparse3d": ours, **theirs}, args.repeats)
        best = {who: 1e3 * min(seconds) for who, seconds in taken.items()}
        middle = {who: 1e3 * statistics.median(seconds) for who, seconds in taken.items()}
        fastest = min((ms for who, ms in best.items() if who != "sparse3d"), default=None)
        gain = None if fastest is None else fastest / best["sparse3d"]
        verdict = "" if gain is None else f"{gain:5.2f}x" + ("" if gain >= bound else "  LOST")
        listed = ", ".join(f"{who} {ms:.1f}" for who, ms in best.items())
        print(f"{name:58s} {verdict:14s} {listed} ms", flush=True)
        results.append({"row": name, "bound": bound, "gain": gain, "best": best, "median": middle})
    if args.json:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        metadata = {
            "commit": commit,
            "machine": platform.machine(),
            "processor": processor(),
            "os": platform.system(),
            "torch": torch.__version__,
            "threads": args.threads,
            "repeats": args.repeats,
        }
        record = {"metadata": metadata, "absent": peers.absent, "results": results}
        args.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
