"""Large scenes: the bench at a small scale in every run, in full at night, and its record."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "bench/results/scale.json"
CASES = ("outputs", "grid", "batch", "kernel", "channels")
GIGABYTE = 1024
ERROR = 1e-5  # float32 against float64, as tests/tolerance.py has it forward


def run(cases, scale, limit, tmp_path):
    out = tmp_path / "scale.json"
    flags = ["--scale", str(scale), "--limit-gb", str(limit), "--json", str(out)]
    subprocess.run(
        [sys.executable, ROOT / "bench/bench_scale.py", *cases, *flags],
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        check=True,
    )
    return json.loads(out.read_text("utf-8"))["cases"]


def judge(found):
    for case, result in found.items():
        assert result.get("worst_sampled_error", 0) < ERROR, case
        assert result.get("moved_gives_the_same_bytes", True), case
        assert all(step["seconds"] >= 0 for step in result["steps"].values())


@pytest.mark.slow
def test_small_scenes_of_the_same_kinds_are_right(tmp_path):
    found = run(("outputs", "batch"), 0.01, 2, tmp_path)
    judge(found)
    assert found["batch"]["pooled_rows"] == 1000


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_full_size(case, tmp_path):
    found = run((case,), 1, 16, tmp_path)
    judge(found)
    assert found[case]["peak_mb"] <= 16 * GIGABYTE


def test_the_recorded_result_is_of_full_size_and_within_the_limit():
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert recorded["scale"] == 1
    assert recorded["limit_gb"] == 16
    assert recorded["machine"]
    found = recorded["cases"]
    assert set(found) == set(CASES)
    judge(found)
    assert found["outputs"]["outputs"] > 2**31
    assert found["outputs"]["peak_mb"] <= 16 * GIGABYTE
    assert found["batch"]["batch"] == 100_000
    assert found["kernel"]["kernel"] == 11
    assert found["channels"]["c"] == [512, 512]
    grid = found["grid"]["grid"]
    assert grid[0] * grid[1] * grid[2] == 2**40
