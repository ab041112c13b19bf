"""Point stand-ins rename, reorder and keep conventions; arithmetic has a contract in the core."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "sparse3d/compat"
POINTS = (
    "knn_cuda", "mps_pointops", "pointnet2_ops", "pointops", "pointops2", "pytorch3d",
    "torch_cluster", "torch_scatter",
)  # fmt: skip
FILES = sorted(
    [file for package in POINTS for file in (COMPAT / package).rglob("*.py")] + [COMPAT / "pyg.py"]
)
ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult,
    ast.LShift, ast.RShift,
)  # fmt: skip
# Methods and functions that compute values; layout (view, transpose), copies and dtypes are free.
COMPUTING = {
    "sqrt", "exp", "log", "cumsum", "sum", "mean", "prod", "norm", "argsort", "sort", "topk",
    "searchsorted", "scatter_reduce", "scatter_add", "index_add", "bincount", "cdist", "div",
    "floor", "ceil", "round", "square", "diff", "repeat_interleave", "rand", "randperm", "einsum",
    "add", "sub", "mul", "matmul", "add_", "mul_", "div_", "sub_", "segment_sum",
}  # fmt: skip
# The number of input channels of a layer that also takes positions.
ALLOWED = {("pointnet2_modules.py", "widths[0] + 3")}


def arithmetic(source: str, name: str) -> list[str]:
    """Expressions of a file that compute."""
    found = []
    for node in ast.walk(ast.parse(source)):
        computes = (isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC)) or (
            isinstance(node, ast.AugAssign)
        )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            computes = node.func.attr in COMPUTING
        text = ast.unparse(node) if computes else ""
        if computes and (name, text) not in ALLOWED:
            found.append(f"{name}:{node.lineno}: {text}")
    return sorted(found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(COMPAT)))
def test_a_stand_in_computes_nothing(file: Path) -> None:
    found = arithmetic(file.read_text("utf-8"), file.name)
    assert not found, f"give the core an option with a contract instead: {found}"


def test_arithmetic_is_seen() -> None:
    seen = arithmetic("y = x * 2\ny += 1\nz = torch.sqrt(y)\nw = z.view(-1)\n", "x.py")
    assert [line.split(": ", 1)[0] for line in seen] == ["x.py:1", "x.py:2", "x.py:3"]
