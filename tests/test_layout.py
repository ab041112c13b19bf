"""The layout of ARCHITECTURE.md, checked: one stem per op in every tree, small files."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sparse3d"
CONTRACTS = ("ops", "pointops")
BACKENDS = ("cpu", "metal", "cuda")
HARD_LIMIT = 500


def stems(folder, pattern="*.py"):
    """Public stems of a folder: a leading underscore means infrastructure, not an op."""
    return {file.stem for file in folder.glob(pattern) if not file.stem.startswith("_")}


def modules():
    roots = [PACKAGE, ROOT / "models", ROOT / "tools", ROOT / "bench"]
    return sorted(file for root in roots if root.exists() for file in root.rglob("*.py"))


def code_lines(file):
    """Lines that hold code: neither blank, nor comment, nor docstring."""
    source = file.read_text()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def contract_stems():
    return set().union(*(stems(PACKAGE / folder) for folder in CONTRACTS))


@pytest.mark.parametrize("folder", CONTRACTS)
def test_every_op_file_has_its_test(folder):
    missing = stems(PACKAGE / folder) - {
        stem.removeprefix("test_") for stem in stems(ROOT / "tests" / folder, "test_*.py")
    }
    assert not missing, f"write tests/{folder}/test_<stem>.py for: {sorted(missing)}"


@pytest.mark.parametrize("package", BACKENDS)
def test_backend_modules_are_named_for_a_contract(package):
    unknown = stems(PACKAGE / package) - contract_stems()
    assert not unknown, f"sparse3d/{package}: no contract of that name: {sorted(unknown)}"


def test_no_module_is_too_long():
    long = {
        str(file.relative_to(ROOT)): lines
        for file in modules()
        if (lines := code_lines(file)) > HARD_LIMIT
    }
    assert not long, f"split these (limit {HARD_LIMIT} code lines): {long}"


def test_no_native_source_is_too_long():
    patterns = ("cpu/csrc/*", "metal/*.metal", "cuda/*.h")
    files = [file for pattern in patterns for file in sorted(PACKAGE.glob(pattern))]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}
    assert len(lengths) > 50
    long = {file: lines for file, lines in lengths.items() if lines > HARD_LIMIT}
    assert not long, f"split these (limit {HARD_LIMIT} lines): {long}"


def test_no_grab_bags():
    """But those with other libraries' names: the stand-ins, and spconv's utils in nn."""
    bags = {"utils", "util", "helpers", "common", "misc"}
    foreign = (PACKAGE / "compat", PACKAGE / "nn/utils.py")
    found = [
        str(file.relative_to(ROOT))
        for file in modules()
        if file.stem in bags and not any(file.is_relative_to(place) for place in foreign)
    ]
    assert not found, f"name these for what they do: {found}"


def test_code_lines_counts_code(tmp_path):
    file = tmp_path / "x.py"
    head = '"""Doc\n\nstring."""\n\n# comment\n'
    file.write_text(head + 'x = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n')
    assert code_lines(file) == 4
