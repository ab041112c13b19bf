"""Every code block of the executed pages runs, in order, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ["how-it-works.md", "semantics.md", "numerics.md", "export.md"]
NEEDS = {"export.md": ("onnxscript", "onnxruntime")}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_code_prints_what_the_page_says(page: str) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module)
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = [(m[1], m[2], text[: m.start()].count("\n") + 1) for m in BLOCK.finditer(text)]
    languages = {language for language, _, _ in blocks}
    assert languages <= {"python", "text"}, f"{page} has blocks that nothing runs: {languages}"
    torch.manual_seed(0)
    scope: dict[str, object] = {"__name__": page}
    printed = ""
    ran = 0
    for language, body, line in blocks:
        if language == "python":
            assert not printed, f"{page}:{line}: the block above prints, and no text follows it"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * line + body, page, "exec"), scope)
            printed = out.getvalue()
            ran += 1
        else:
            assert printed == body, f"{page}:{line}: printed\n{printed}"
            printed = ""
    assert not printed, f"{page}: the last block prints, and no text follows it"
    assert ran


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_docs_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (DOCS / target).exists(), f"{page} links to {target}"
