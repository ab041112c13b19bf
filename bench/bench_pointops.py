"""Point operators against the specialists on the CPU, in one run on one machine.

    python bench/bench_pointops.py [--threads 2] [--json out.json] [--only random kitti ...]
    python bench/bench_pointops.py --million --json out.json

Every row times ours and each peer that is installed on the same points (fpsample, SciPy, Open3D,
torch_cluster, pytorch3d), builds of indices included, best and median of several runs taken in
turn. Each row is judged by its own bounds; one below its bound is printed as LOST. Exactness is
checked first, on every whole cloud: what a row times is compared with brute force, float64 beside
it (`_exact.py`; kNN and ball queries for 256 random queries, every place of FPS). No number is
printed for an operator whose result is wrong.
Clouds are random points, the same points sorted, and the scans of `SCANS` that are in the shared
data. `--json` keeps rows that an earlier run on the same machine and commit has put there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _exact
import _harness
import numpy as np
import torch

from sparse3d import pointops

Runs = dict[str, Callable[[], Any]]
Best = dict[str, float]
OURS = "sparse3d"
MOST = 130_000
"""Scans of more points are thinned evenly to at most so many, so that rows stay near 100,000."""


@dataclass(frozen=True)
class Scan:
    """A real cloud of the shared data; `unit` is the length that radii are told in, in metres."""

    name: str
    file: str
    unit: float = 1.0


SCANS = (
    Scan("KITTI 64 beams, road", "lidar/kitti_spvnas_000000.bin"),
    Scan("KITTI 64 beams, town", "lidar/kitti_00_000094.bin"),
    Scan(
        "Argoverse 2, 2 x 32 beams, float16", "lidar/av2_7fab2350_315966265259836000_labelled.npz"
    ),
    Scan("Ouster 128 beams", "lidar/os128_patchwork_000000.pcd"),
    Scan("nuScenes 32 beams", "lidar/nuscenes_n015_1532402927647951.pcd.bin"),
    Scan("urban laser scan", "lidar/small_gicp_source.ply"),
    Scan("room, tilting laser", "indoor/room_scan1.pcd"),
    Scan("office, depth camera", "indoor/office1_organized_nan.pcd", 0.2),
    Scan("turtle, depth camera", "object/cturtle.pcd", 0.1),
    Scan("aerial tile, feet", "aerial/autzen_trim.laz", 20.0),
)


@dataclass(frozen=True)
class Bound:
    """What a row must reach. `value` is None where no peer of its kind is installed."""

    text: str
    value: Callable[[Best], float | None]
    met: Callable[[float], bool]


def at_most(milliseconds: float) -> Bound:
    return Bound(
        f"at most {milliseconds:g} ms", lambda best: best[OURS], lambda value: value <= milliseconds
    )


def times(
    factor: float, peers: str = "the fastest peer", match: Callable[[str], bool] = lambda _: True
) -> Bound:
    """So many times as fast as the fastest of the peers that match."""

    def value(best: Best) -> float | None:
        theirs = [ms for who, ms in best.items() if who != OURS and match(who)]
        return min(theirs) / best[OURS] if theirs else None

    return Bound(f"{factor:g}x {peers}", value, lambda reached: reached >= factor)


@dataclass(frozen=True)
class Row:
    name: str
    bounds: tuple[Bound, ...]
    ours: Callable[[], Any]
    peers: Runs


@dataclass(frozen=True)
class Cloud:
    name: str
    points: torch.Tensor
    unit: float = 1.0


def clouds(points: int) -> list[Cloud]:
    draw = torch.Generator().manual_seed(0)
    random = torch.rand(points, 3, generator=draw) * 10
    ordered = random[random[:, 0].argsort()].contiguous()
    found = [Cloud("random", random), Cloud("sorted", ordered)]
    for scan in SCANS:
        path = _harness.shared() / "data" / scan.file
        if not path.is_file():
            print(f"# {scan.name}: no {scan.file} in the shared data", file=sys.stderr)
            continue
        rows = real_points(path)
        rows = rows[:: -(-len(rows) // MOST)]
        found.append(Cloud(scan.name, torch.from_numpy(rows.copy()), scan.unit))
    return found


def real_points(path: Path) -> np.ndarray:
    """Positions near the origin, without the zeros that stand for no return."""
    from sparse3d.data.readers import read_points

    rows, _ = read_points(path, drop_invalid=True).local()
    return rows[(rows != 0).any(1)]


def timed(runs: Runs, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each, taken in turn so that a busy moment hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            taken[name].append(1e3 * (time.perf_counter() - begin))
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

    def fps(self, cloud: torch.Tensor, count: int) -> Runs:
        points = cloud.numpy()
        runs: Runs = {}
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

    def knn(self, query: torch.Tensor, cloud: torch.Tensor, k: int) -> Runs:
        q, p = query.numpy(), cloud.numpy()
        runs: Runs = {}
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

    def ball(self, query: torch.Tensor, cloud: torch.Tensor, radius: float, k: int) -> Runs:
        q, p = query.numpy(), cloud.numpy()
        runs: Runs = {}
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


def check(cloud: Cloud) -> None:
    """The calls that the rows of a cloud time, against brute force over the whole cloud."""
    points = cloud.points
    batch, few = points[None], thinned(points)
    near, wide = 0.2 * cloud.unit, 0.5 * cloud.unit
    confirm_fps(cloud)
    for query in (points, few):
        confirm(cloud, "kNN", _exact.knn, query, points, 16, pointops.knn(query[None], batch, 16))
    for query, radius in ((points, near), (few, wide)):
        found = pointops.ball_query(query[None], batch, radius, 32)
        confirm(cloud, "ball query", _exact.ball, query, points, radius, 32, found)


def check_million(cloud: Cloud) -> None:
    """As `check`, for the rows of a million points."""
    batch = cloud.points[None]
    confirm_fps(cloud)
    found = pointops.knn(batch, batch, 16)
    confirm(cloud, "kNN", _exact.knn, cloud.points, cloud.points, 16, found)


def confirm_fps(cloud: Cloud) -> None:
    taken = pointops.furthest_point_sample(cloud.points[None], 1024)
    confirm(cloud, "FPS", _exact.fps, cloud.points, taken)


def confirm(cloud: Cloud, name: str, by: Callable[..., None], *result: Any) -> None:
    try:
        by(*result)
    except _exact.Wrong as error:
        raise SystemExit(f"{name} of {cloud.name} is wrong: {error}; no numbers") from error


def thinned(points: torch.Tensor) -> torch.Tensor:
    return points[:: max(len(points) // 1024, 1)][:1024].contiguous()


def rows(peers: Peers, cloud: Cloud) -> list[Row]:
    points = cloud.points
    batch, few = points[None], thinned(points)
    size, near, wide = f"{len(points):,}", 0.2 * cloud.unit, 0.5 * cloud.unit
    fast = (times(1.5),)
    return [
        Row(
            f"FPS 1,024 of {size}, {cloud.name}",
            (at_most(13),),
            lambda: pointops.furthest_point_sample(batch, 1024),
            peers.fps(points, 1024),
        ),
        Row(
            f"kNN 16, {size} queries, {cloud.name}",
            fast,
            lambda: pointops.knn(batch, batch, 16),
            peers.knn(points, points, 16),
        ),
        Row(
            f"kNN 16, 1,024 queries, {cloud.name}",
            fast,
            lambda: pointops.knn(few[None], batch, 16),
            peers.knn(few, points, 16),
        ),
        Row(
            f"ball query 32, r = {wide:g}, 1,024 queries, {cloud.name}",
            fast,
            lambda: pointops.ball_query(few[None], batch, wide, 32),
            peers.ball(few, points, wide, 32),
        ),
        Row(
            f"ball query 32, r = {near:g}, {size} queries, {cloud.name}",
            fast,
            lambda: pointops.ball_query(batch, batch, near, 32),
            peers.ball(points, points, near, 32),
        ),
    ]


def million_rows(peers: Peers) -> list[Row]:
    points = torch.rand(1_000_000, 3, generator=torch.Generator().manual_seed(1)) * 100
    check_million(Cloud("a million points", points))
    batch = points[None]
    return [
        Row(
            "FPS 1,024 of 1,000,000",
            (
                times(5, "the best exact peer but kd-line", lambda who: "kd-line" not in who),
                times(1, "fpsample kd-line", lambda who: "kd-line" in who),
            ),
            lambda: pointops.furthest_point_sample(batch, 1024),
            peers.fps(points, 1024),
        ),
        Row(
            "kNN 16, 1,000,000 queries",
            (times(1.5, "cKDTree"),),
            lambda: pointops.knn(batch, batch, 16),
            peers.knn(points, points, 16),
        ),
    ]


def judged(row: Row, repeats: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Best times with the verdict, and medians; both flat records."""
    taken = timed({OURS: row.ours, **row.peers}, repeats)
    best = {who: min(ms) for who, ms in taken.items()}
    verdicts, lost = [], False
    for bound in row.bounds:
        value = bound.value(best)
        met = value is not None and bound.met(value)
        lost |= value is not None and not met
        word = "no such peer" if value is None else "met" if met else "LOST"
        verdicts.append(f"{bound.text}: {'' if value is None else f'{value:.3g}, '}{word}")
    gain = times(0).value(best)
    record = {
        "row": row.name,
        "verdict": "; ".join(verdicts),
        "lost": lost,
        "x fastest peer": "" if gain is None else round(gain, 2),
        **{f"{who} ms": round(ms, 3) for who, ms in best.items()},
    }
    middle = {f"{who} ms": round(statistics.median(ms), 3) for who, ms in taken.items()}
    return record, {"row": row.name, **middle}


def keep(path: Path, about: dict[str, Any], results: list[Any], medians: list[Any]) -> None:
    """Write rows beside those of an earlier run on the same machine and commit."""
    old = json.loads(path.read_text()) if path.is_file() else {}
    same = ("machine", "torch", "threads", "commit")
    where = old.get("provenance", {})
    if any(where.get(key) != about["provenance"][key] for key in same):
        old = {}
    fresh = {record["row"] for record in results}
    kept = [
        [record for record in old.get(part, []) if record["row"] not in fresh]
        for part in ("results", "medians")
    ]
    _harness.write(path, {**about, "results": kept[0] + results, "medians": kept[1] + medians})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--million", action="store_true", help="the rows of a million points alone")
    parser.add_argument("--only", nargs="*", help="clouds whose name contains one of these words")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    peers = Peers(args.threads)
    results, medians = [], []

    def run(table: list[Row]) -> None:
        for row in table:
            record, middle = judged(row, args.repeats)
            results.append(record)
            medians.append(middle)
            listed = ", ".join(f"{k} {v}" for k, v in record.items() if k.endswith("ms"))
            print(f"{row.name:70s} {record['verdict']:40s} {listed}", flush=True)

    if args.million:
        run(million_rows(peers))
    for cloud in [] if args.million else clouds(args.points):
        if args.only is None or any(word in cloud.name for word in args.only):
            check(cloud)
            run(rows(peers, cloud))
    if args.json:
        size = "a million" if args.million else "about 100,000"
        about = {
            "title": f"Point operators: {size} points",
            "about": "Best of several runs taken in turn, in milliseconds; peers' builds of indices"
            " are in their times.",
            "provenance": {**_harness.provenance(), "repeats": args.repeats},
            "absent": peers.absent,
        }
        keep(args.json, about, results, medians)
    if any(record["lost"] for record in results):
        print("LOST rows: see above")


if __name__ == "__main__":
    main()
