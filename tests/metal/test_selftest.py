"""The self-test that Mac owners run, here on the harness; and that it can fail."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch
from metal_emu import installed

import sparse3d
from sparse3d import _registry, selftest
from sparse3d._cases.clouds import cases
from sparse3d._cases.samples import EMPTY, SMALL, WIDE, Size, engine_ops
from sparse3d.ops.pool import pool_max, pool_sum

F32 = torch.float32


def _counted(name: str, kernel: _registry.Kernel, called: set[str]) -> _registry.Kernel:
    def run(*args: Any) -> Any:
        called.add(name)
        return kernel.run(*args)

    return _registry.Kernel(run, kernel.when)


def test_every_operator_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LAYERS", ((4, 32), (16, 16)))
    sizes = (EMPTY, Size("few", 33, 8, 12), Size("a stem", 65, 4, 8))
    called: set[str] = set()
    with installed(check=False), _registry.force("metal"):
        table = sparse3d.backends()
        for name, op in _registry._ops.items():
            if "metal" in op.kernels:
                counted = _counted(name, op.kernels["metal"], called)
                monkeypatch.setitem(op.kernels, "metal", counted)
        report = selftest.run("cpu", sizes, selftest.CASES[::15], rows=120, repeats=1)
    assert report.failures == []
    assert report.checks > 150
    assert any("conv  16 ->  16" in line for line in report.lines)
    assert called == {name for name, row in table.items() if row["metal"] == "kernel"}


def test_a_wrong_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LAYERS", ())
    monkeypatch.setattr(selftest, "all_ops", lambda: {op.name: op for op in (pool_sum, pool_max)})
    with installed(check=False), _registry.force("metal"):
        right = pool_sum.kernels["metal"]
        wrong = _registry.Kernel(lambda *args: right.run(*args) + 1, None)
        monkeypatch.setitem(pool_sum.kernels, "metal", wrong)
        few = [case for case in selftest.CASES if case.cloud in ("empty", "random")][:2]
        report = selftest.run("cpu", (SMALL,), few, rows=40, repeats=1)
    failed = [line.split(":")[0] for line in report.failures]
    assert failed == [
        *(f"FAIL pool_sum, small, {kind}" for kind in ("float32", "float16", "bfloat16")),
        "FAIL maps, random-3d_subm_k3",
    ]


def test_the_cpu_passes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that have no kernel there by design are left out."""
    monkeypatch.setattr(selftest, "LAYERS", ((4, 8),))
    report = selftest.run("cpu", (SMALL,), selftest.CASES[::40], rows=120, repeats=1)
    assert report.failures == []
    assert report.checks > 30


def test_everything_of_the_contract_suite_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default: every op of the engine, every cloud and geometry, every tile size."""
    names = [name for name, *_ in selftest._calls("metal", selftest.SIZES, selftest.CASES, [F32])]
    kinds = {name.split(",")[0] for name in names}
    with installed(check=False):
        sparse3d.backends()
        assert engine_ops().keys() <= kinds
    assert {f"maps, {case}" for case in cases(duplicates=True)} <= set(names)
    rows = {size.rows for size in selftest.SIZES}
    assert {0, 1, 31, 32, 33, 63, 64, 65} <= rows
    assert {EMPTY, WIDE} <= set(selftest.SIZES)


def test_without_the_backend_it_says_so() -> None:
    if torch.backends.mps.is_available():
        pytest.skip("this machine has a Metal device")
    from metal_emu import uninstalled

    with uninstalled():
        report = selftest.run("mps")
    assert "FAIL backend metal: no Metal device" in report.failures[0]
    assert report.checks == 1  # none of it passed


def test_the_report_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a Mac that is not named are of no use; a torch that has no name for it is no
    fault."""
    apple = torch.backends.mps
    monkeypatch.setattr(apple, "is_available", lambda: True)
    monkeypatch.setattr(_registry, "load", lambda backend: "not here")
    monkeypatch.setattr(apple, "get_name", lambda: "Apple M9", raising=False)
    monkeypatch.setattr(apple, "get_core_count", lambda: 12, raising=False)
    assert selftest.run("mps").lines[1].startswith("device mps (Apple M9, 12 cores), backend ")
    monkeypatch.delattr(apple, "get_core_count")
    assert selftest.run("mps").lines[1].startswith("device mps, backend ")


@pytest.mark.parametrize("again", [0, 1])
def test_on_a_mac_it_runs_once_more_with_fast_math(
    again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], str | None]] = []

    def start(command: list[str], env: dict[str, str], check: bool) -> Any:
        started.append((command[1:], env.get("PYTORCH_MPS_FAST_MATH")))
        return subprocess.CompletedProcess(command, again, check)

    monkeypatch.delenv("PYTORCH_MPS_FAST_MATH", raising=False)
    monkeypatch.setattr(selftest, "run", lambda *_, **__: selftest.Report())
    monkeypatch.setattr(selftest.subprocess, "run", start)
    given = ["--device", "mps", "--rows", "40"]
    assert selftest.main(given) == again
    assert started == [(["-m", "sparse3d", "selftest", *given], "1")]


@pytest.mark.parametrize(("mps", "cuda"), [(True, True), (False, True), (False, False)])
def test_it_takes_the_device_that_is_there(
    mps: bool, cuda: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "mps" if mps else "cuda" if cuda else "cpu"
    steps: list[str] = []

    def run(device: str, rows: int, progress: Callable[[int, int], None]) -> selftest.Report:
        steps.append(device)
        monkeypatch.setattr(selftest.time, "monotonic", lambda: 1e12)
        progress(1, 7)
        return selftest.Report()

    monkeypatch.setenv("PYTORCH_MPS_FAST_MATH", "1")  # no second process
    monkeypatch.setattr(selftest, "run", run)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert selftest.main([]) == 0
    out, err = capsys.readouterr()
    assert steps == [wanted]
    assert out.splitlines()[0] == (
        f"selftest of {wanted} against the CPU reference; it takes minutes"
    )
    assert err == "selftest: 1 of 7\n"


def test_progress_reaches_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LAYERS", ())
    seen: list[tuple[int, int]] = []
    selftest.run("cpu", (SMALL,), [], rows=40, repeats=1, progress=lambda *s: seen.append(s))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(total + 1)]


@pytest.mark.parametrize("rows", ["0", "-1", "99999999999999999999"])
def test_rows_that_cannot_be(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        selftest.main(["--device", "cpu", "--rows", rows])
    assert f"--rows must be from 1 to 10000000, got {rows}" in capsys.readouterr().err
