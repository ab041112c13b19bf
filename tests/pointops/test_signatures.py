"""Names, parameters, order and defaults as mps-pointops 1.0.0 has them (recorded)."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest

from sparse3d import pointops

RECORD = json.loads((Path(__file__).parent / "recorded" / "mps_pointops-1.0.0.json").read_text())
# Modules of mps-pointops whose functions live elsewhere here.
HOME = {
    "__init__": pointops,
    "flat": pointops.flat,
    "reference": pointops.reference,
    "grid": pointops,
    "graclus": pointops,
    "nearest": pointops.flat,
    "random_walk": pointops,
    "pointcept": pointops.pointcept,
    "voxel": pointops.voxel,
}
CASES = [(module, name) for module, names in RECORD["modules"].items() for name in names]


def test_public_names() -> None:
    assert set(RECORD["all"]) <= set(pointops.__all__)
    assert all(hasattr(pointops, name) for name in pointops.__all__)


@pytest.mark.parametrize(("module", "name"), CASES)
def test_signature(module: str, name: str) -> None:
    function = HOME[module]
    for part in name.split("."):
        function = getattr(function, part)
    mine = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    recorded = RECORD["modules"][module][name]
    for parameter, (wanted, kind, default) in zip(mine, recorded, strict=False):
        assert parameter.name == wanted
        assert (parameter.kind == parameter.KEYWORD_ONLY) == (kind == "keyword")
        has_default = parameter.default is not parameter.empty
        assert has_default == (default is not None)
        if has_default:
            assert parameter.default == ast.literal_eval(default)
    assert len(mine) >= len(recorded)
    for parameter in mine[len(recorded) :]:
        assert parameter.default is not parameter.empty
