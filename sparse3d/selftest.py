"""`sparse3d selftest`: every operator on a device against the CPU, times, and a report to paste.

The kernels for Apple GPUs are developed on an emulator; a report from a Mac is what confirms them.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import sparse3d
from sparse3d import _registry, pointops
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates, KernelMap
from sparse3d.ops import (
    conv,
    coordinates,
    dense,
    kernel_map,
    linear,
    norm,
    order,
    pool,
    segment,
    voxelize,
)

__all__ = ["Report", "main", "run"]

Tensors = list[torch.Tensor]
Call = Callable[[], Any]
To = Callable[[torch.Tensor], torch.Tensor]

DOWN = Geometry((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1))
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-2}
SIZES = (0, 1, 31, 32, 33, 65, 300)
CHANNELS = ((4, 32, 1), (16, 24, 1), (64, 64, 1), (40, 136, 1), (32, 32, 2), (8, 8, 8))
LAYERS = ((4, 32), (32, 32), (64, 64), (128, 128))
MOST_ROWS = 10_000_000
FAST_MATH = "PYTORCH_MPS_FAST_MATH"


@dataclass
class Report:
    """Lines to paste, and what failed."""

    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    checks: int = 0

    def check(self, name: str, error: float, limit: float) -> None:
        """Count a comparison; a failure is a line of its own."""
        self.checks += 1
        if not error <= limit:
            self.failures.append(f"FAIL {name}: error {error:.2g}, limit {limit:.2g}")


def _cloud(rows: int, seed: int) -> torch.Tensor:
    """Distinct voxels of two samples, about three neighbours each, batches mixed."""
    draw = torch.Generator().manual_seed(seed)
    side = max(2, round((4.0 * rows) ** (1 / 3)))
    picked = torch.randperm(2 * side**3, generator=draw)[:rows]
    axes = [picked // side**3, picked // side**2 % side, picked // side % side, picked % side]
    return torch.stack(axes, 1).int()


def _values(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _listed(result: Any) -> Tensors:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference over the largest value; infinite where integers, shapes or NaN differ."""
    ours = ours.detach().cpu()
    if ours.shape != expected.shape or ours.dtype != expected.dtype:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(ours, expected) else float("inf")
    if not torch.equal(ours.isnan(), expected.isnan()):
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    a, b = ours.float().nan_to_num(), expected.float().nan_to_num()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))


def _map_cases(rows: int, to: To) -> Iterator[tuple[str, Call]]:
    coords, queries = to(_cloud(rows, rows)), to(_cloud(rows // 2 + 1, rows + 1))
    twice = torch.cat([coords, coords[: rows // 3]])
    table = coordinates.coordinate_table
    three, two, one, zero = [3] * 3, [2] * 3, [1] * 3, [0] * 3
    yield "unique", lambda: coordinates.coordinate_unique(twice)
    yield "lookup", lambda: coordinates.coordinate_lookup(coords, table(coords), queries)
    submanifold, given = kernel_map.kernel_map_submanifold, kernel_map.kernel_map_given
    footprint, floor = kernel_map.kernel_map_footprint, kernel_map.kernel_map_floor
    yield "submanifold", lambda: submanifold(coords, table(coords), three, one)
    neighbours = kernel_map.kernel_map_neighbours
    yield "neighbours", lambda: neighbours(coords, table(coords), three, one)
    yield "given", lambda: given(coords, table(coords), queries, three, two, one, one)
    yield "footprint", lambda: footprint(twice, three, two, one, one, [], False)
    yield "generative", lambda: footprint(coords, two, two, zero, one, [], True)
    yield "floor", lambda: floor(coords, table(coords), two, two, zero, one)


def _order_cases(rows: int, to: To) -> Iterator[tuple[str, Call]]:
    ids = to(torch.arange(rows) * 7 % 11)
    wide = to((torch.arange(rows) * 7919 % 23 - 11) << 33)
    yield "order of int64", lambda: order.key_order(wide)
    yield "order of int32", lambda: order.key_order((ids - 5).int())
    yield "counts", lambda: order.id_counts(ids, 11)
    yield "running sums", lambda: order.running_sums(ids)


def _pairs(rows: int, kind: str) -> KernelMap:
    sites = Coordinates(_cloud(rows, rows), None, 2)
    with _registry.force("reference"):
        if kind == "submanifold":
            return sites.submanifold((3, 3, 3), (1, 1, 1))
        return sites.footprint(DOWN, None)[0]


def _conv_cases(
    pairs: KernelMap,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    to: To,
) -> Iterator[tuple[str, Call]]:
    cin, cout, groups = shape
    here = KernelMap(
        *(to(pairs.src), to(pairs.dst), pairs.splits, to(pairs.in_indices)),
        to(pairs.out_indices),
        pairs.geometry,
        pairs.mirrored,
    )
    x, weight = _values(1, here.num_in, cin), _values(2, cout, here.num_taps, cin // groups) / 8
    x, weight = to(x.to(dtype)), to(weight.to(dtype))
    grad = to(_values(3, here.num_out, cout, dtype=dtype))
    lists = (here.src, here.dst, here.splits)

    def plans() -> tuple[Tensors, Tensors]:
        return here.plan(), here.grad_plan()

    def backward() -> Any:
        plan, grad_plan = plans()
        return conv.conv_input_grad(grad, weight, *lists, grad_plan, plan, here.num_in, groups)

    def fused() -> Any:
        extras = (to(_values(4, cout)), grad, "leaky_relu", 0.1)
        return conv.conv_fused(x, weight, *lists, here.plan(), here.num_out, groups, *extras)

    yield "conv", lambda: conv.conv_forward(x, weight, *lists, *plans(), here.num_out, groups)
    yield "conv input gradient", backward
    yield "conv weight gradient", lambda: conv.conv_weight_grad(x, grad, *lists, *plans(), groups)
    yield "conv fused", fused
    yield "pool sum", lambda: pool.pool_sum(x, *lists, here.num_out)
    yield "pool max", lambda: pool.pool_max(x, *lists, here.num_out)
    arg = pool.pool_max.reference(
        x.cpu(), pairs.src.cpu(), pairs.dst.cpu(), pairs.splits, here.num_out
    )[1]
    up = to(_values(6, here.num_out, cin, dtype=dtype))
    yield "pool max gradient", lambda: pool.pool_max_grad(up, to(arg), *lists, here.num_in)


def _point_cases(rows: int, dtype: torch.dtype, to: To) -> Iterator[tuple[str, Call]]:
    values = to(_values(1, rows, 5, dtype=dtype))
    ids = to(torch.arange(rows) * 7 % 11)
    coords = to(_cloud(rows, rows))
    points = _cloud(2 * rows, rows + 2).float() + torch.tensor([0.0, 0.25, 0.5, 0.75])
    points = to(points.to(dtype))
    at = to(torch.arange(8 * rows).reshape(-1, 8).int() % (rows + 1) - 1)
    share, up = to(_values(2, rows, 8).to(dtype)), to(_values(3, rows, 5).to(dtype))
    shape = [int(v) + 1 for v in coords[:, 1:].amax(0).tolist()] if rows else [2, 2, 2]
    grid = to(_values(4, 2, *shape, 5).to(dtype))
    table = coordinates.coordinate_table
    yield "segment sum", lambda: segment.segment_sum(values, ids, 11)
    yield "segment max", lambda: segment.segment_max(values, ids, 11)
    yield "trilinear", lambda: voxelize.trilinear_map(coords, table(coords), points)
    yield "interpolate", lambda: voxelize.interpolate(values, at, share)
    yield "interpolate gradient", lambda: voxelize.interpolate_grad(up, at, share, max(rows, 1))
    yield "dense scatter", lambda: dense.dense_scatter(values, coords, 2, shape)
    yield "dense gather", lambda: dense.dense_gather(grid, coords)
    odd = values.clone()
    odd[:1, :2], odd[1:2, :2] = float("nan"), float("inf")  # fast math has no rules for these
    yield "segment max of NaN", lambda: segment.segment_max(odd, ids, 11)
    matrix = to(_values(8, 7, 5, dtype=dtype))
    yield "linear", lambda: linear.linear_rows(values, matrix, False)
    yield "linear weight gradient", lambda: linear.linear_weight_grad(values, up)
    scale, mean = to(_values(5, 5)), values.float().sum(0) / max(rows, 1)
    var = ((values.float() - mean) ** 2).sum(0) / max(rows, 1)
    yield "batch norm", lambda: norm.batch_norm_train(values, scale, scale, 1e-3)
    yield "its gradient", lambda: norm.batch_norm_grad(up, values, scale, mean, var, 1e-3)
    pair = (values, scale, scale)
    yield "norm and ReLU", lambda: norm.batch_norm_relu_train(*pair, up, 1e-3)
    yield "norm and ReLU again", lambda: norm.batch_norm_relu_again(*pair, mean, var, 1e-3)
    yield "their gradient", lambda: norm.batch_norm_relu_grad(up, *pair, None, mean, var, 1e-3)


def _cloud_cases(rows: int, to: To) -> Iterator[tuple[str, Call]]:
    """Point operators, on a lattice: most distances have equals."""
    if rows < 9:
        return
    cloud = to(_cloud(rows, rows)[:, 1:].float())
    xyz, features = cloud[None], to(_values(6, 1, 4, rows))
    at = to(torch.arange(12).reshape(1, 4, 3) % rows)
    share = to(_values(7, 1, 4, 3).abs())
    yield "farthest points", lambda: pointops.furthest_point_sample(xyz, 9)
    yield "nearest points", lambda: pointops.knn(xyz, xyz, 4)
    yield "ball", lambda: pointops.ball_query(xyz, xyz, 2.5, 6)
    yield "nearest by index", lambda: pointops.SpatialIndex(cloud).knn(cloud, 4)
    yield "gather", lambda: pointops.gather(features, at[:, :, 0])
    yield "interpolation of points", lambda: pointops.three_interpolate(features, at, share)


def _cases(rows: int, dtypes: list[torch.dtype], to: To) -> Iterator[tuple[str, Call, float]]:
    for name, call in _map_cases(rows, to):
        yield f"{name}, {rows} rows", call, 0.0
    for name, call in _order_cases(rows, to):
        yield f"{name}, {rows} rows", call, 0.0
    shapes = CHANNELS if rows == SIZES[-1] else CHANNELS[1:2]
    for dtype in dtypes:
        limit = TOLERANCE[dtype]
        for kind in ("submanifold", "footprint"):
            for shape in shapes:
                for name, call in _conv_cases(_pairs(rows, kind), shape, dtype, to):
                    yield f"{name}, {kind}, {rows} rows, {shape}, {dtype}", call, limit
        for name, call in _point_cases(rows, dtype, to):
            yield f"{name}, {rows} rows, {dtype}", call, limit
    for name, call in _cloud_cases(rows, to):
        yield f"{name}, {rows} points", call, 1e-6


def _compare(report: Report, device: torch.device, sizes: tuple[int, ...]) -> None:
    dtypes = [torch.float32, torch.float16]
    if _takes_bfloat(device):
        dtypes.append(torch.bfloat16)
    report.lines.append("dtypes: " + ", ".join(str(d).removeprefix("torch.") for d in dtypes))
    for rows in sizes:
        expected = _cases(rows, dtypes, lambda t: t)
        for (name, call, limit), (_, reference, _) in zip(
            _cases(rows, dtypes, lambda t: t.to(device)), expected, strict=True
        ):
            with _registry.force("reference"):
                wanted = _listed(reference())
            try:
                with _registry.strict():
                    got = _listed(call())
            except Exception as error:
                report.checks += 1
                report.failures.append(f"FAIL {name}: {type(error).__name__}: {error}")
                continue
            for ours, theirs in zip(got, wanted, strict=True):
                report.check(name, _error(ours, theirs), limit)


def _takes_bfloat(device: torch.device) -> bool:
    try:
        return bool((torch.ones(2, dtype=torch.bfloat16, device=device) + 1).sum().item() == 4)
    except (RuntimeError, TypeError):
        return False


def _synchronize(device: torch.device) -> None:
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type == "cuda":
        torch.cuda.synchronize()


def _layers(report: Report, device: torch.device, rows: int, repeats: int) -> None:
    """Times of the main layers, with a sentinel: work that the watchdog kills fails in silence."""
    sites = Coordinates(_cloud(rows, 1).to(device), None, 2)
    sites.trust_distinct()
    started = time.perf_counter()
    pairs = sites.submanifold((3, 3, 3), (1, 1, 1))
    plan = pairs.plan()
    _synchronize(device)
    took = (time.perf_counter() - started) * 1e3
    report.lines.append(
        f"map and plan of {rows} voxels, {len(pairs)} pairs: {took:.2f} ms (first use)"
    )
    lists = (pairs.src, pairs.dst, pairs.splits)
    for cin, cout in LAYERS:
        x = _values(1, rows, cin).half().to(device)
        weight = (_values(2, cout, 27, cin) / 8).half().to(device)
        times = []
        for _ in range(repeats + 1):
            sentinel = torch.zeros(1, device=device)
            _synchronize(device)
            started = time.perf_counter()
            out = conv.conv_forward(x, weight, *lists, plan, [], rows, 1)
            sentinel += 1
            _synchronize(device)
            times.append((time.perf_counter() - started) * 1e3)
            alive = sentinel.item() == 1 and bool(out.isfinite().all()) and bool(out.any())
            report.check(f"sentinel {cin} -> {cout}", 0.0 if alive else float("inf"), 0.0)
        median = sorted(times[1:])[len(times[1:]) // 2]
        report.lines.append(
            f"conv {cin:3} -> {cout:3} half: {median:8.2f} ms (median of {repeats})"
        )


def run(
    device: str, sizes: tuple[int, ...] = SIZES, rows: int = 80_000, repeats: int = 5
) -> Report:
    """Compare every operator with the reference and time the main layers.

    Args:
        device: "mps", "cuda" or "cpu".
        sizes: row counts of the comparisons.
        rows: voxels of the timed layers.
        repeats: timed calls of each layer.

    Returns:
        The report; empty `failures` means all is well.
    """
    where, report = torch.device(device), Report()
    backend = _registry.backend_for(where)
    report.lines += [
        f"sparse3d {sparse3d.__version__}, torch {torch.__version__}, {platform.platform()}",
        f"device {device}, backend {backend}, fast math {os.environ.get(FAST_MATH, '0')}",
    ]
    reason = None if backend == "reference" else _registry.load(backend)
    if reason is not None:
        report.checks += 1
        report.failures.append(f"FAIL backend {backend}: {reason}")
        return report
    with torch.no_grad():
        _compare(report, where, sizes)
        _layers(report, where, rows, repeats)
    return report


def main(arguments: list[str]) -> int:
    """Run the command; prints the report.

    Returns:
        0 where everything agrees, else 1.
    """
    parser = argparse.ArgumentParser(prog="sparse3d selftest", description=__doc__)
    parser.add_argument("--device", default="mps", choices=["mps", "cuda", "cpu"])
    parser.add_argument("--rows", type=int, default=80_000, help="voxels of the timed layers")
    options = parser.parse_args(arguments)
    if not 1 <= options.rows <= MOST_ROWS:
        parser.error(f"--rows must be from 1 to {MOST_ROWS}, got {options.rows}")
    report = run(options.device, rows=options.rows)
    passed = report.checks - len(report.failures)
    verdict = f"{passed} of {report.checks} checks passed"
    sys.stdout.write("\n".join([*report.lines, *report.failures, verdict]) + "\n")
    status = int(bool(report.failures))
    if options.device == "mps" and not status and FAST_MATH not in os.environ:
        # The compiler reads the switch once a process.
        command = [sys.executable, "-m", "sparse3d", "selftest", *arguments]
        again = subprocess.run(command, env=os.environ | {FAST_MATH: "1"}, check=False)
        status = again.returncode
    return status
