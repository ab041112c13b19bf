"""`import sparse3d` is enough to reach what the documentation names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRESH = """
import sys
import sparse3d

heavy = {"data", "models", "train", "view", "export", "compat", "checkpoint", "pointops"}
early = heavy & {name.removeprefix("sparse3d.") for name in sys.modules}
assert not early, early
for path in sys.argv[1:]:
    value = sparse3d
    for name in path.split("."):
        value = getattr(value, name)
assert {"data", "view", *sparse3d.__all__} <= set(dir(sparse3d))
assert "minkunet" in dir(sparse3d.models)
for name in sparse3d._LATE:
    assert getattr(sparse3d, name).__name__ == f"sparse3d.{name}"
assert "sparse3d.data.readers" in sys.modules
try:
    sparse3d.absent
except AttributeError as error:
    assert str(error) == "module 'sparse3d' has no attribute 'absent'", error
else:
    raise AssertionError("absent")
"""


def named() -> set[str]:
    """`sparse3d.a` and `sparse3d.a.b` as the pages write them outside of import statements."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
    text = "\n".join(line for line in lines if not re.search(r"\b(from|import) sparse3d", line))
    found = re.findall(r"(?<![\w./-])sparse3d\.([a-z]\w*(?:\.[a-z]\w*)?)(?![\w/])", text)
    return set(found) - {"cuda", "metal"}  # those import where such a GPU is


def test_what_pages_name_is_reached_from_one_import() -> None:
    paths = named()
    assert {"data.read_points", "models.minkunet", "checkpoint.load"} <= paths
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *sorted(paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
