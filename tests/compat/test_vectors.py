"""Every handed vector goes through a stand-in."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest
from compat import test_minkowski_golden, test_spconv, test_torchsparse_golden
from golden import reader

PEERS = {"me_": test_minkowski_golden, "spconv_": test_spconv, "ts_": test_torchsparse_golden}


def asked_for(module: ModuleType) -> set[str]:
    """Vectors that a test of the module names in its body or takes as a parameter."""
    found: set[str] = set()
    for title, function in inspect.getmembers(module, inspect.isfunction):
        if not title.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(inspect.getsource(function))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id == "Vector" and isinstance(first, ast.Constant):
                    found.add(str(first.value))
        for mark in getattr(function, "pytestmark", []):
            if mark.name == "parametrize" and "name" in mark.args[0]:
                rows = [row if isinstance(row, tuple) else (row,) for row in mark.args[1]]
                found |= {str(row[0]) for row in rows}
    return found


@pytest.mark.parametrize("prefix", PEERS)
def test_no_handed_vector_is_left_out(prefix: str) -> None:
    asked = {name for name in asked_for(PEERS[prefix]) if name.startswith(prefix)}
    assert asked == set(reader.names(prefix))


def test_the_handed_vectors_are_the_recorded_ones(shared: Path) -> None:
    names = {path.stem for path in (shared / "golden").glob("*.npz")}
    assert names == set(reader.names(""))
    assert len(names) == sum(len(reader.names(prefix)) for prefix in PEERS) == 68
