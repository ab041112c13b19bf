"""Live comparison with spconv 2.3.8's CPU wheel (extra ``parity``), in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from parity import problems
from parity.problems import Problem

import sparse3d.nn as spnn

pytestmark = pytest.mark.parity

COUNT, SEED = 40, 11
FORWARD, GRADIENT = 1e-5, 1e-4
APART = Path(sys.prefix) / "parity"
"""Where spconv may lie out of the way of its stand-in, which never shadows a real package."""


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> list[Problem]:
    """The peer's answers: layers, then the net."""
    if importlib.util.find_spec("spconv") is None and not APART.is_dir():
        pytest.skip(f"spconv is not installed: pip install --target {APART} spconv==2.3.8")
    out = tmp_path_factory.mktemp("peer") / "answers.pt"
    subprocess.run(
        [sys.executable, str(Path(__file__).parent / "peer.py"), str(COUNT), str(SEED), str(out)],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(APART)},
        timeout=300,
    )
    return [Problem(**entry) for entry in torch.load(out)]


def _compare(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], scale: float) -> None:
    """Rows matched by site; errors relative to the largest value where that passes 1."""
    rows = oracle.match_rows(theirs["coords"].numpy(), ours["coords"].numpy())
    assert ours["shape"].tolist() == theirs["shape"].tolist()
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        if key in ("coords", "shape") or not expected.is_floating_point():
            continue
        left = ours[key].numpy()
        right = expected.numpy()[rows] if key == "features" else expected.numpy()
        bound = (FORWARD if key == "features" else GRADIENT) * scale
        bound *= max(1.0, float(np.abs(right).max(initial=0.0)))
        error = float(np.abs(left - right).max(initial=0.0))
        assert error <= bound, f"{key}: {error:.3g} above {bound:.3g}"


@pytest.mark.parametrize("index", range(COUNT))
def test_layer(index: int, solved: list[Problem]) -> None:
    problem = solved[index]
    extra: dict[str, Any] = {"floor_at_zero": True} if problem.kind == "SparseMaxPool" else {}
    _compare(problems.solve(spnn, problem, **extra), problem.answer, 1.0)


def test_net_from_spconvs_state_dict(solved: list[Problem]) -> None:
    """Ten convolutions with batch norms in training: loaded, run, and differentiated."""
    problem = solved[-1]
    _compare(problems.solve_net(spnn, problem), problem.answer, 10.0)
