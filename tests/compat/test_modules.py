"""Every public module of a peer is importable through its stand-in, or the document tells of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

import pytest
from compat import migration

import sparse3d.compat

MODULES: dict[str, list[str]] = json.loads((migration.HERE / "names" / "modules.json").read_text())
INSTALLED = {
    "minkowski": "MinkowskiEngine",
    "spconv 1.x": "spconv",
    "torchsparse_1_4": "torchsparse==1.4.0",
    "pointops 1.x": "pointops",
    "torchsparse_1_2": "torchsparse==1.2.0",
}
EVERY = [(peer, module) for peer, modules in MODULES.items() for module in modules]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    sparse3d.compat.uninstall()


@pytest.mark.parametrize(("peer", "module"), EVERY)
def test_every_module(peer: str, module: str) -> None:
    """What is told of as absent is absent with all below it."""
    name = INSTALLED.get(peer, peer)
    if name.partition("==")[0] not in sparse3d.compat.install(name):
        pytest.skip("a real package of that name is installed here")
    parts = module.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    if above & set(migration.absent(peer.removesuffix(" 1.x"))):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)
        return
    found = importlib.import_module(module)
    assert found.__name__.startswith("sparse3d.compat.")


def test_recorded_names_lie_in_listed_modules() -> None:
    for peer in migration.PEERS:
        assert set(migration.recorded(peer)) - set(MODULES[peer]) == set()


def test_absent_modules_are_listed() -> None:
    for peer in migration.PEERS:
        listed = {name for key, names in MODULES.items() for name in names if key == peer}
        if migration.DOCUMENTS.get(peer) is None:
            assert set(migration.absent(peer)) - listed == set()
