"""`docs/migration` tells the truth about every recorded name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from compat import migration

import sparse3d.compat

EVERY = [
    (peer, module, name)
    for peer in migration.PEERS
    for module, names in migration.recorded(peer).items()
    for name in names
]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    sparse3d.compat.uninstall()


@pytest.mark.parametrize("path", sorted({migration.document(peer) for peer in migration.PEERS}))
def test_examples_run(path: Any, capsys: Any) -> None:
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", path.read_text(), re.DOTALL)
    exec(compile(code, str(path), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("path", sorted({migration.document(peer) for peer in migration.PEERS}))
def test_tables_are_up_to_date(path: Any) -> None:
    assert path.read_text() == migration.written(path), "python tests/compat/migration.py"


@pytest.mark.parametrize(("peer", "module", "name"), EVERY)
def test_every_name(peer: str, module: str, name: str) -> None:
    """It is there; its parameters are the recorded ones, or the document says what differs."""
    facts = migration.recorded(peer)[module][name]
    found = migration.status(peer, module, name)
    keys = {name, f"{module}.{name}"}
    assert (found == "refuses") == bool(keys & set(migration.told(peer, "What is refused")))
    if found == "refuses":
        return
    words = migration.difference(peer, module, name, facts)
    assert not words or found == "works with a difference", words


def test_a_probe_tells_refusals_from_errors() -> None:
    class Refusing:
        def __init__(self, size: int, bias: bool = True) -> None:
            raise NotImplementedError

    assert migration.refuses(Refusing)
    assert not migration.refuses(torch.nn.Linear)
    assert not migration.refuses(torch.nn.functional.relu)
    for name in migration.AS_THE_PEER:
        assert any(entry.endswith(f".{name}") for entry in migration.probed()["spconv"])


def test_told_names_are_recorded() -> None:
    for peer in migration.PEERS:
        if peer in migration.DOCUMENTS:
            continue
        sharing = [peer, *(p for p, home in migration.DOCUMENTS.items() if home == peer)]
        rows = [row for p in sharing for row in migration.recorded(p).items()]
        known = {name for _, names in rows for name in names}
        known |= {f"{module}.{name}" for module, names in rows for name in names}
        known |= set(migration.absent(peer))  # test_modules.py looks at those
        for heading in ("What differs", "What is refused"):
            assert set(migration.told(peer, heading)) - known == set(), heading


APART = {"pytorch3d": "names below are counted\napart"}
"""Documents that count refusals apart: of pytorch3d a part is stood in for."""


@pytest.mark.parametrize("peer", migration.PEERS)
def test_refusals_are_few(peer: str) -> None:
    """At most 3 %, but for names that their document counts apart."""
    asked = {
        (module, name): migration.status(peer, module, name)
        for module, names in migration.recorded(peer).items()
        for name in names
    }
    if peer in APART:
        assert APART[peer] in migration.document(peer).read_text()
        apart = migration.told(peer, "What is refused")
        asked = {key: found for key, found in asked.items() if key[1] not in apart}
        assert {"ball_query", "knn_points", "chamfer_distance"} <= {name for _, name in asked}
    assert list(asked.values()).count("refuses") <= 0.03 * len(asked)
