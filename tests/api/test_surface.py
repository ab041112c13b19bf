"""The public surface is the recorded one: names and signatures change on purpose only."""

import inspect
import json
from enum import Enum

from api.record import FILE, _plain, described, model_modules, surface

AGAIN = "if that is meant, note it in CHANGELOG.md and run: PYTHONPATH=. python tests/api/record.py"


def differences(recorded, found):
    """One line a change, as a reviewer reads it."""
    lines = []
    for module in sorted(recorded.keys() | found.keys()):
        old, new = recorded.get(module, {}), found.get(module, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                where = f"{module}: {name}"
                lines += [f"- {where} {old[name]}"] if name in old else []
                lines += [f"+ {where} {new[name]}"] if name in new else []
    return lines


def test_the_public_surface_is_the_recorded_one():
    recorded = json.loads(FILE.read_text("utf-8"))
    changed = differences(recorded, surface())
    assert not changed, "\n".join(["the public surface changed:", *changed, AGAIN])


def test_every_package_lists_its_names_and_has_them():
    found = surface()
    assert {"SparseConvTensor", "KernelMap", "voxelize"} <= found["sparse3d"].keys()
    assert {"SubMConv3d", "SubMConv3d.forward", "prepare", "fuse"} <= found["sparse3d.nn"].keys()
    assert {"knn", "fps"} & found["sparse3d.pointops"].keys()
    assert set(model_modules()) <= found.keys()
    assert all(found.values())


def test_a_change_reads_as_one_line_gone_and_one_come():
    old = {"m": {"f": "function(a: int)", "g": "function()"}}
    new = {"m": {"f": "function(a: int, b: int = 0)", "g": "function()", "h": "property"}}
    assert differences(old, new) == [
        "- m: f function(a: int)", "+ m: f function(a: int, b: int = 0)", "+ m: h property",
    ]  # fmt: skip


def test_signatures_do_not_depend_on_the_interpreter():
    class Kind(Enum):
        ONE = 1

    def quoted(a: "int | None" = None, *, b=Kind.ONE) -> "str":
        return ""

    assert described(quoted) == "function(a: int | None = None, *, b=<Kind>) -> str"
    assert _plain(inspect.Parameter.empty) is inspect.Parameter.empty
