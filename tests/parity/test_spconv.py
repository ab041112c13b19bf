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
from parity import problems, programs
from parity.problems import Problem

import sparse3d.compat.spconv.pytorch as stand_in
import sparse3d.nn as spnn

pytestmark = pytest.mark.parity

COUNT, SEED = 40, 11
FORWARD, GRADIENT = 1e-5, 1e-4
APART = Path(sys.prefix) / "parity"
"""Where spconv may lie out of the way of its stand-in, which never shadows a real package."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The peer's answers: layers and the net, and programs."""
    if importlib.util.find_spec("spconv") is None and not APART.is_dir():
        pytest.skip(f"spconv is not installed: pip install --target {APART} spconv==2.3.8")
    out = tmp_path_factory.mktemp("peer") / "answers.pt"
    subprocess.run(
        [sys.executable, str(Path(__file__).parent / "peer.py"), str(COUNT), str(SEED), str(out)],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(APART)},
        timeout=300,
    )
    made: dict[str, Any] = torch.load(out)
    return made


@pytest.fixture(scope="module")
def solved(answers: dict[str, Any]) -> list[Problem]:
    """Layers, then the net."""
    return [Problem(**entry) for entry in answers["problems"]]


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


@pytest.mark.parametrize("seed", range(COUNT))
def test_program(seed: int, answers: dict[str, Any]) -> None:
    """Sites, features and every gradient, through the stand-in."""
    theirs, ours = answers["programs"][seed], programs.solve(stand_in, seed)
    if "output grid must be at least 1" in ours["failure"]:  # the peer goes on, or fails otherwise
        return
    assert ours["failure"] == theirs["failure"] == ""
    assert [step[0] for step in ours["steps"]] == [step[0] for step in theirs["steps"]]
    for mine, other in zip(ours["steps"], theirs["steps"], strict=True):
        assert mine[3] == other[3], mine[0]
        order = [sorted(range(len(step[1])), key=step[1].tolist().__getitem__)
                 for step in (mine, other)]  # fmt: skip
        assert torch.equal(mine[1][order[0]], other[1][order[1]]), mine[0]
        left, right = mine[2][order[0]], other[2][order[1]]
        bound = FORWARD * 10 * max(1.0, float(right.abs().max()))
        assert float((left - right).abs().max()) <= bound, mine[0]
    for left, right in zip(ours["gradients"], theirs["gradients"], strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            bound = GRADIENT * 10 * max(1.0, float(right.abs().max()))
            assert float((left - right).abs().max()) <= bound
