"""The self-test that Mac owners run, here on the harness; and that it can fail."""

from typing import Any

import pytest
import torch
from metal_emu import installed

import sparse3d
from sparse3d import _registry, selftest
from sparse3d.ops.pool import pool_sum


def _counted(name: str, kernel: _registry.Kernel, called: set[str]) -> _registry.Kernel:
    def run(*args: Any) -> Any:
        called.add(name)
        return kernel.run(*args)

    return _registry.Kernel(run, kernel.when)


def test_every_operator_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LAYERS", ((4, 32), (16, 16)))
    monkeypatch.setattr(selftest, "CHANNELS", ((4, 32, 1), (16, 24, 1)))
    called: set[str] = set()
    with installed() as running, _registry.force("metal"):
        table = sparse3d.backends()
        for name, op in _registry._ops.items():
            if "metal" in op.kernels:
                counted = _counted(name, op.kernels["metal"], called)
                monkeypatch.setitem(op.kernels, "metal", counted)
        report = selftest.run("cpu", sizes=(0, 1, 31, 32, 33, 65), rows=120, repeats=1)
    assert report.failures == []
    assert report.checks > 80
    assert any("conv  16 ->  16" in line for line in report.lines)
    assert len({t.kernel for t in running.log}) > 25
    assert called == {name for name, row in table.items() if row["metal"] == "kernel"}


def test_a_wrong_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LAYERS", ())
    with installed(), _registry.force("metal"):
        right = pool_sum.kernels["metal"]
        wrong = _registry.Kernel(lambda *args: right.run(*args) + 1, None)
        monkeypatch.setitem(pool_sum.kernels, "metal", wrong)
        report = selftest.run("cpu", sizes=(33,), rows=40, repeats=1)
    assert {line.split(",")[0] for line in report.failures} == {"FAIL pool sum"}


def test_without_the_backend_it_says_so() -> None:
    if torch.backends.mps.is_available():
        pytest.skip("this machine has a Metal device")
    from metal_emu import uninstalled

    with uninstalled():
        report = selftest.run("mps")
    assert "FAIL backend metal: no Metal device" in report.failures[0]
    assert report.checks == 1  # none of it passed


@pytest.mark.parametrize("rows", ["0", "-1", "99999999999999999999"])
def test_rows_that_cannot_be(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        selftest.main(["--device", "cpu", "--rows", rows])
    assert f"--rows must be from 1 to 10000000, got {rows}" in capsys.readouterr().err
