"""The workflow files promise what pyproject.toml does, and name files that exist."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
MUTATION = (ROOT / "tools/mutation.py").read_text("utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


def workflow(name):
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))


def commands(table):
    for job in table["jobs"].values():
        for step in job["steps"]:
            yield step.get("run") or step.get("uses")


def test_the_matrix_is_what_the_project_promises():
    matrix = workflow("compatibility")["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert f'requires-python = ">={matrix["python"][0]}"' in PROJECT
    oldest = re.search(r'"torch>=([\d.]+)"', PROJECT)[1]
    assert matrix["torch"][0] == f"{oldest}.*"
    assert matrix["torch"][-1] == "newest"


def test_wheels_are_built_for_three_platforms():
    table = workflow("wheels")
    systems = table["jobs"]["wheel"]["strategy"]["matrix"]["os"]
    assert [re.sub(r"[\d.]+", "", name) for name in systems] == [
        "ubuntu-", "ubuntu--arm", "macos-",
    ]  # fmt: skip
    assert any("cibuildwheel" in line for line in commands(table))
    assert any("--sdist" in line for line in commands(table))


def test_holes_and_licences_are_looked_for():
    lines = "\n".join(commands(workflow("audit")))
    assert "pip_audit" in lines
    assert "tests/test_licences.py" in lines


def test_installations_are_tried_bare_and_with_the_command_line():
    lines = "\n".join(commands(workflow("compatibility")))
    for words in ("python -m sparse3d doctor", "segment --demo", "[cli]", "tests/installed.py"):
        assert words in lines


def test_the_long_tests_run_at_night():
    table = workflow("nightly")
    lines = "\n".join(commands(table))
    for words in ("make coverage", "-m nightly", "tools/mutation.py"):
        assert words in lines
    run = " ".join([lines, *table["jobs"]["long"]["strategy"]["matrix"]["tests"]])
    run = run.replace('"', " ").split()
    for file in {*(ROOT / "tests").rglob("test_*.py")} - {Path(__file__).resolve()}:
        if "pytest.mark.nightly" in file.read_text("utf-8") and file.stem != "test_pyg_examples":
            places = [file, *(folder for folder in file.parents if ROOT in folder.parents)]
            assert any(str(place.relative_to(ROOT)) in run for place in places), file
    targets = table["jobs"]["mutants"]["strategy"]["matrix"]["target"]
    assert targets == re.findall(r'^    "(\w+)": Target', MUTATION, re.MULTILINE)
    assert "fail_under = 95" in PROJECT


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_workflows_have_few_rights_and_name_files_that_exist(file):
    text = file.read_text("utf-8")
    table = yaml.safe_load(text)
    assert table["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text
    assert "secrets." not in text
    for path in re.findall(r"\b((?:tests|\.ci|bench|tools)/[\w./]+)", text):
        assert (ROOT / path.rstrip(".")).exists(), path


def test_mutants_are_imported_though_an_editable_installation_stands_ahead(monkeypatch):
    """Its finder would give the tests the unchanged package, and every mutant would live."""
    spec = importlib.util.spec_from_file_location("mutation", ROOT / "tools/mutation.py")
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutation", tool)
    spec.loader.exec_module(tool)

    class Finder:
        __module__ = "_editable_some_package"

        def find_spec(self, *_):
            raise AssertionError("asked")

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "sparse3d", raising=False)
    tool.import_from(ROOT)
    assert sys.path[0] == str(ROOT)
    with pytest.raises(SystemExit, match=r"^sparse3d must come from /nowhere, got "):
        tool.import_from(Path("/nowhere"))
