"""Every code block of every page runs and prints what stands below it; the site builds."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
# tests/compat/test_migration.py runs those pages: stand-ins must be taken away again.
# The example operator stays registered: its page runs in a process of its own.
# tests/train/test_page.py makes the data set that the training page needs.
APART = ("add-an-operator.md", "train.md")
EXECUTED = [page for page in PAGES if not page.startswith("migration/") and page not in APART]
# Tables of numbers.
SHOWN_ONLY = {"metal.md": {""}, "metal-harness.md": {"text"}}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {
    "export.md": ["onnx", "onnxruntime", "onnxscript"],
    "index.md": ["typer", "rich", "matplotlib", "yaml"],
    "tutorial.md": ["matplotlib"],
}


def blocks(page: str) -> list[tuple[str, str, int]]:
    """Language, text and line of every fenced block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(m[1], m[2], text[: m.start()].count("\n") + 1) for m in BLOCK.finditer(text)]


def command(line: str) -> str:
    """What a line of a console block says on stdout."""
    from typer.testing import CliRunner

    from sparse3d.cli import app

    program, *arguments = shlex.split(line.removeprefix("$ "))
    assert program == "sparse3d", line
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return ""


@pytest.mark.parametrize("page", EXECUTED)
def test_code_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NEEDS.get(page, ()):
        pytest.importorskip(name)
    if page == "metal-harness.md" and shutil.which("g++") is None:
        pytest.skip("no g++ here")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run(page)


def run(page: str) -> None:
    """Run a page's blocks in order."""
    scope: dict[str, object] = {"__name__": page}
    printed = ""
    for language, body, line in blocks(page):
        if language == "python":
            assert not printed, f"{page}:{line}: the block above prints, and no text follows it"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * line + body, page, "exec"), scope)
            printed = out.getvalue()
        elif language == "console":
            for each in body.splitlines():
                command(each)
        elif printed or language not in SHOWN_ONLY.get(page, ()):
            assert language == "text", f"{page}:{line}: nothing runs a block of {language!r}"
            assert printed == body, f"{page}:{line}: printed\n{printed}"
            printed = ""
    assert not printed, f"{page}: the last block prints, and no text follows it"


def test_the_example_operator_runs_in_a_process_of_its_own() -> None:
    """Operators stay registered, and contract tests want samples of each."""
    code = "import test_docs, torch; torch.manual_seed(0); test_docs.run(test_docs.APART[0])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


EXAMPLES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for root in ("sparse3d", "models")
    for path in (ROOT / root).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8") and not path.is_symlink()
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_of_docstrings_run(module: str) -> None:
    name = f"sparse3d.{module}" if module.startswith("models.") else module
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_docs_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        place = (DOCS / page).parent / target
        made = place.is_relative_to(DOCS / "operators")
        assert made or place.exists(), f"{page} links to {target}"


# ---- the site


@pytest.fixture(scope="module")
def pages() -> Any:
    """The hook that makes the operators' pages."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("doc_pages")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def _children_seconds() -> float:
    """Processor time of programs that have ended: other work on the machine does not count."""
    spent = os.times()
    return spent.children_user + spent.children_system


@pytest.mark.slow
def test_the_site_builds_strictly_and_soon(pages: Any, tmp_path: Path) -> None:
    begin = _children_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert _children_seconds() - begin < 20
    for package in pages.PACKAGES:
        for stem in pages.stems(package):
            assert (tmp_path / "operators" / f"{package}-{stem}" / "index.html").is_file()
    conv = (tmp_path / "operators" / "ops-conv" / "index.html").read_text("utf-8")
    assert 'id="fused_conv"' in conv
    assert "sparse3d/metal/conv.py" in conv
    assert not re.search(r'(src|href)="https?://(?!squidfunk)', conv)  # but for the theme's credit


def test_every_public_operator_has_an_entry(pages: Any) -> None:
    import sparse3d.pointops

    found = {
        node.name
        for stem in pages.stems("pointops")
        for node in pages.public("pointops", stem, pages.parse("pointops", stem))
    }
    names = set(sparse3d.pointops.__all__)
    modules = {name for name in names if inspect.ismodule(getattr(sparse3d.pointops, name))}
    assert names - modules <= found
    assert modules <= set(pages.stems("pointops"))


def test_docstrings_become_markdown(pages: Any) -> None:
    doc = (
        "Do it: now.\n\nMeaning: a < b,\n  and more.\nErrors: none at all.\n\n    y = x\n\n"
        "Args:\n    values: [N, C] of\n        floats.\n    num: rows.\n\nReturns:\n    [N].\n\n"
        "Example:\n    >>> 1\n    1\n"
    )
    assert pages.markdown(doc).split("\n") == [
        "Do it: now.", "", "- **Meaning**: a &lt; b, and more.", "- **Errors**: none at all.", "",
        "```text", "y = x", "```", "", "**Args**", "", "- `values`: [N, C] of floats.",
        "- `num`: rows.", "", "", "**Returns**", "", "- [N].", "", "", "**Example**", "",
        "```pycon", ">>> 1", "1", "```", "",
    ]  # fmt: skip


def test_results_become_tables(pages: Any, tmp_path: Path) -> None:
    plain = tmp_path / "bench_conv--box.json"
    plain.write_text(json.dumps({
        "title": "Convolution", "about": "One layer.",
        "metadata": {"machine": "a box", "threads": 2},
        "results": [{"case": "a|b", "ms": 1.23456, "rows": 94444}, {"case": "c", "x": True}],
    }))  # fmt: skip
    text = pages.result_text(plain)
    assert text.startswith(
        "## Convolution\n\nOne layer.\n\n*Measured on:* machine a box; threads 2."
    )
    assert "| case | ms | rows | x |\n|--|--:|--:|--:|\n| a\\|b | 1.235 | 94,444 |  |" in text
    nested = tmp_path / "old_form.json"
    nested.write_text(json.dumps({"rows": 5, "ours": {"conv": {"best": 1.5}, "map": [1, 2]}}))
    text = pages.result_text(nested)
    assert "## old form" in text
    assert "rows: 5" in text
    assert "| conv / best | 1.5 |" in text
    assert "| map / 1 | 2 |" in text
    assert "No results" in pages.results_text([])


def test_committed_results_can_be_shown(pages: Any) -> None:
    for path in ROOT.glob("bench/results/**/*.json"):
        assert pages.result_text(path).startswith("## ")
