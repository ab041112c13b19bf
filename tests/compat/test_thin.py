"""Stand-ins rename, reorder and keep conventions; arithmetic has a contract in the core.

*Arithmetic* is what makes new values of tensors or arrays (features, coordinates, weights, rows):
the operators + - * / // % ** @ << >>, their assigning forms, and the methods and functions of
`COMPUTING`. *Not arithmetic*: layout (`view`, `cat`, `permute`), choice (`where`, `clamp`,
indexing, comparisons, bit masks), copies, dtypes, random initial values through `torch.nn.init`,
torch's own layers, and calls of the core.

Numbers of Python are free: a column, a stride, a width or a message is bookkeeping that each peer
does its own way, holds no data and has no kernel. `plain_numbers.py` tells them by literals and
annotations; what it cannot see to be plain counts as a tensor.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from compat.plain_numbers import Reader

COMPAT = Path(__file__).parents[2] / "sparse3d/compat"
FILES = sorted(COMPAT.rglob("*.py"))
ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult,
    ast.LShift, ast.RShift,
)  # fmt: skip
COMPUTING = {
    "sqrt", "exp", "log", "cumsum", "sum", "mean", "prod", "norm", "argsort", "sort", "topk",
    "searchsorted", "scatter_reduce", "scatter_add", "index_add", "bincount", "cdist", "div",
    "floor", "ceil", "round", "square", "diff", "repeat_interleave", "rand", "randperm", "einsum",
    "add", "sub", "mul", "matmul", "mm", "bmm", "add_", "mul_", "div_", "sub_", "segment_sum",
    "rsqrt", "reciprocal", "var", "std", "rsub", "floor_divide", "remainder", "true_divide",
    "addmm", "baddbmm", "addcmul", "lerp", "pow", "unique", "histc", "outer", "dot", "trunc",
    "index_add_", "scatter_add_", "scatter_reduce_", "logsumexp", "softmax", "linalg",
}  # fmt: skip
# Methods of ours that share a name: `Coordinates.floor(geometry, shape)`.
OURS = {("floor", 2)}
ALLOWED = {
    # Sums of the stand-ins' own sparse tensors, as a user of the peer writes them.
    ("resnet_block.py", "out += x if self.downsample is None else self.downsample(x)"),
    ("senet_block.py", "out += x if self.downsample is None else self.downsample(x)"),
    ("blocks.py", "self.main(x) + self.shortcut(x)"),
    # A path; an entry of a set; the input channels of a layer that takes positions too.
    ("_install.py", "Path(__file__).parent / str(path)"),
    ("_coordinate_sets.py", "self._off_lattice.add(key)"),
    ("pointnet2_modules.py", "widths[0] + 3"),
}


def arithmetic(source: str, name: str) -> list[str]:
    """Expressions of a file that compute."""
    found = []
    for node, scope in Reader(ast.parse(source)).found:
        computes = False
        if isinstance(node, ast.BinOp):
            computes = isinstance(node.op, ARITHMETIC) and not scope.plain(node)
        elif isinstance(node, ast.AugAssign):
            computes = isinstance(node.op, ARITHMETIC) and not scope.plain(node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            computes = node.func.attr in COMPUTING and not scope.plain(node)
            computes = computes and (node.func.attr, len(node.args)) not in OURS
        text = ast.unparse(node) if computes else ""
        if computes and (name, text) not in ALLOWED:
            found.append(f"{name}:{node.lineno}: {text}")  # type: ignore[attr-defined]
    return sorted(found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(COMPAT)))
def test_a_stand_in_computes_nothing(file: Path) -> None:
    found = arithmetic(file.read_text("utf-8"), file.name)
    assert not found, f"give the core an option with a contract instead: {found}"


def lines(source: str) -> list[str]:
    return [line.split(": ", 1)[1] for line in arithmetic(source, "x.py")]


def test_arithmetic_is_seen() -> None:
    assert lines("y = x * 2\ny += z\nw = torch.sqrt(y)\nv = w.view(-1)\n") == [
        "x * 2", "y += z", "torch.sqrt(y)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: torch.Tensor, n: int): return x + n",
        "def f(x: torch.Tensor):\n    x += 1",
        "def f(x: Any): return 2 * x",
        "def f(rows: list[torch.Tensor]): return [row / 2 for row in rows]",
        "def f(n: int, x: torch.Tensor):\n    n = x\n    return n * 2",
        "def f(x: torch.Tensor): return x.stride() + x",
        "def f(n: int): return (lambda n: n - 1)(n)",
        "class A:\n def f(self):\n  self.n = 1\nclass B:\n def f(s, x):\n  s.n = x\ny = b.n * 2",
        "def f(x: torch.Tensor, n: int):\n    for n in x:\n        g(n**2)",
    ],
)
def test_a_tensor_is_not_taken_for_a_number(source: str) -> None:
    assert lines(source)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: torch.Tensor): return x.shape[1] - 1",
        "def f(n: int, s: tuple[int, ...]): return [n * step for step in s]",
        "def f(x: torch.Tensor): return len(x) // 2 + int(x.max())",
        "def f(name: str, n: int): return (0,) * n, name + 's'",
        "count = 0\ncount += 1",
    ],
)
def test_numbers_of_python_are_free(source: str) -> None:
    assert not lines(source)
