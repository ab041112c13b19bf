"""`sparse3d selftest`: every operator on a device against the CPU, times, and a report to paste.

The kernels for Apple GPUs are developed on an emulator; a report from a Mac is what confirms them.
"""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import sparse3d

from . import _registry, doctor
from ._cases import clouds
from ._cases.samples import EMPTY, FLOATING, OPAQUE, WIDE, Size, all_ops, map_calls, samples
from .kernel_map import Coordinates
from .ops import conv, segment

__all__ = ["Report", "main", "run"]

To = Callable[[torch.Tensor], torch.Tensor]
Call = Callable[[To], Any]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-2}
SIZES = (
    EMPTY,
    *(Size(f"{rows} rows", rows, 16, 24) for rows in (1, 31, 32, 33, 63, 64, 65)),
    Size("a stem", 300, 4, 32),
    Size("64 channels", 300, 64, 64),
    Size("odd channels", 300, 40, 136),
    Size("2 groups", 300, 32, 32, 2),
    Size("depthwise", 300, 8, 8, 8),
    WIDE,
)
CASES = tuple(clouds.cases(duplicates=True))
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


Tensors = list[torch.Tensor]


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


def _calls(
    backend: str, sizes: Iterable[Size], cases: Iterable[clouds.Case], dtypes: list[torch.dtype]
) -> Iterator[tuple[str, Call, float]]:
    """Every op of the case table that a backend has a kernel for: a name, what calls it on a
    device, and a limit of the error."""
    ops = {name: op for name, op in all_ops().items() if backend in (*op.kernels, "reference")}
    for size in sizes:
        for name, op in ops.items():
            for dtype in dtypes if name in FLOATING else dtypes[:1]:

                def sampled(
                    to: To, op: Any = op, size: Size = size, dtype: torch.dtype = dtype
                ) -> Any:
                    return [_listed(op(*args)) for args in samples(op, size, dtype, to)]

                kind = f", {str(dtype).removeprefix('torch.')}" if name in FLOATING else ""
                yield f"{name}, {size.name}{kind}", sampled, TOLERANCE[dtype]
    for case in cases:

        def mapped(to: To, case: clouds.Case = case) -> Any:
            calls = map_calls(case, to)
            return [_listed(op(*args)) for op, args in calls if op.name in ops]

        yield f"maps, {case}", mapped, TOLERANCE[torch.float32]
    for dtype in dtypes:  # fast math has no rules for these
        odd = _values(1, 33, 5, dtype=dtype)
        odd[:1, :2], odd[1:2, :2] = float("nan"), float("inf")

        def most(to: To, odd: torch.Tensor = odd) -> Any:
            return [_listed(segment.segment_max(to(odd), to(torch.arange(33) % 11), 11))]

        yield f"segment_max of NaN, {str(dtype).removeprefix('torch.')}", most, 0.0


def _largest(ours: list[Tensors], expected: list[Tensors]) -> float:
    pairs = zip(ours, expected, strict=True)
    return max(
        (_error(a, b) for left, right in pairs for a, b in zip(left, right, strict=True)),
        default=0.0,
    )


def _compare(
    report: Report,
    device: torch.device,
    sizes: Iterable[Size],
    cases: Iterable[clouds.Case],
    progress: Callable[[int, int], None],
) -> None:
    dtypes = [torch.float32, torch.float16]
    if _takes_bfloat(device):
        dtypes.append(torch.bfloat16)
    report.lines.append("dtypes: " + ", ".join(str(d).removeprefix("torch.") for d in dtypes))
    backend = _registry.backend_for(device)
    calls = list(_calls(backend, sizes, cases, dtypes))
    for number, (name, call, limit) in enumerate(calls):
        progress(number, len(calls))
        with _registry.force("reference"):
            expected = call(lambda t: t)
        try:
            with _registry.strict():
                got = call(lambda t: t.to(device))
            opaque = name.split(",")[0] in OPAQUE  # it ran; those that read it are compared
            error = 0.0 if opaque else _largest(got, expected)
        except Exception as failure:
            report.checks += 1
            report.failures.append(f"FAIL {name}: {type(failure).__name__}: {failure}")
            continue
        report.check(name, error, limit)
    progress(len(calls), len(calls))


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
    device: str,
    sizes: Iterable[Size] = SIZES,
    cases: Iterable[clouds.Case] = CASES,
    rows: int = 80_000,
    repeats: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Compare every operator with the reference and time the main layers.

    Args:
        device: "mps", "cuda" or "cpu".
        sizes: of the calls that are compared.
        cases: clouds and geometries whose maps are compared.
        rows: voxels of the timed layers.
        repeats: timed calls of each layer.
        progress: called with how many comparisons are done, and of how many.

    Returns:
        The report; empty `failures` means all is well.
    """
    where, report = torch.device(device), Report()
    backend = _registry.backend_for(where)
    fast_math = os.environ.get(FAST_MATH, "0")
    report.lines += [
        f"sparse3d {sparse3d.__version__}, torch {torch.__version__}, {platform.platform()}",
        f"device {doctor.named(where)}, backend {backend}, fast math {fast_math}",
    ]
    reason = None if backend == "reference" else _registry.load(backend)
    if reason is not None:
        report.checks += 1
        report.failures.append(f"FAIL backend {backend}: {reason}")
        return report
    with torch.no_grad():
        _compare(report, where, sizes, cases, progress)
        _layers(report, where, rows, repeats)
    return report


def _present() -> str:
    if torch.backends.mps.is_available():
        return "mps"
    return "cuda" if torch.cuda.is_available() else "cpu"


class _Counter:
    """How far it is, on stderr: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._every = 0.2 if self._terminal else 30.0
        self._spoken = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now, ended = time.monotonic(), done == total
        if now - self._spoken < self._every and not ended:
            return
        self._spoken = now
        if self._terminal:
            full = 40 * done // max(total, 1)
            bar = f"[{'#' * full}{'.' * (40 - full)}] {done}/{total}"
            sys.stderr.write(f"\r\x1b[K{'' if ended else bar}")
        elif not ended:
            sys.stderr.write(f"selftest: {done} of {total}\n")
        sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Run the command; prints the report.

    Returns:
        0 where everything agrees, else 1.
    """
    parser = doctor.Parser(prog="sparse3d selftest", description=__doc__)
    choices = ["auto", "mps", "cuda", "cpu"]
    way = "auto takes mps where there is one, else cuda, else cpu"
    parser.add_argument("--device", default="auto", choices=choices, help=way)
    parser.add_argument("--rows", type=int, default=80_000, help="voxels of the timed layers")
    options = parser.parse_args(arguments)
    if not 1 <= options.rows <= MOST_ROWS:
        parser.error(f"--rows must be from 1 to {MOST_ROWS}, got {options.rows}")
    device = _present() if options.device == "auto" else options.device
    sys.stdout.write(f"selftest of {device} against the CPU reference; it takes minutes\n")
    sys.stdout.flush()
    report = run(device, rows=options.rows, progress=_Counter())
    passed = report.checks - len(report.failures)
    verdict = f"{passed} of {report.checks} checks passed"
    sys.stdout.write("\n".join([*report.lines, *report.failures, verdict]) + "\n")
    status = int(bool(report.failures))
    if device == "mps" and not status and FAST_MATH not in os.environ:
        # The compiler reads the switch once a process.
        command = [sys.executable, "-m", "sparse3d", "selftest", *arguments]
        # Ctrl-C reaches both: the other one says so.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        again = subprocess.run(command, env=os.environ | {FAST_MATH: "1"}, check=False)
        signal.signal(signal.SIGINT, before)
        status = again.returncode
    return status
