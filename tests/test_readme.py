"""README.md holds its word: its Python runs, it stays short, it names the right distribution."""

import re
from pathlib import Path

import pytest

from sparse3d import compat

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_there_is_a_sample_of_the_promised_size():
    assert BLOCKS
    assert len(BLOCKS[0].splitlines()) <= 20


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block{i}" for i in range(len(BLOCKS))])
def test_python_blocks_run(block):
    try:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    finally:
        compat.uninstall()  # the next test shall not meet a stand-in


def test_it_is_short():
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_no_page_installs_the_foreign_distribution(page):
    text = (ROOT / page).read_text()
    assert not re.search(r"pip install\s+(-\S+\s+)*['\"]?sparse3d(?!-torch)\b", text)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not (ROOT / link).exists()]
    assert not missing
