"""Checkpoints under malformed bytes: tensors by name, or a ValueError of one line."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.commands import run
from fuzz.bytes_of import EFFORTS, fuzz, memory_of, mutations, within
from hypothesis import strategies as st

from sparse3d import checkpoint
from sparse3d.nn import SparseConv3d, SubMConv3d

pytestmark = pytest.mark.filterwarnings("ignore:Detected pickle protocol")

STATE = {"0.weight": torch.arange(24.0).reshape(4, 1, 1, 1, 6), "0.bias": torch.ones(4)}


def _bytes(legacy: bool = False, table: Any = STATE) -> bytes:
    file = io.BytesIO()
    torch.save(table, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def _safe() -> bytes:
    save: Any = pytest.importorskip("safetensors.torch").save
    return bytes(save(STATE))


SEEDS = {
    "zip": (".pth", _bytes),
    "legacy": (".pth", lambda: _bytes(True)),
    "pickle": (".pth", lambda: pickle.dumps({"a": [1.5, {"b": (None, True)}]})),
    "safetensors": (".safetensors", _safe),
}


def _read(path: Path) -> dict[str, torch.Tensor] | None:
    """Tensors by name; None after the one allowed error."""
    refusal = None
    with within(20):
        try:
            return checkpoint.read(path)
        except ValueError as error:
            refusal = str(error)
    assert "\n" not in refusal
    assert str(path) in refusal
    return None


def _allowed(call: Callable[[], Any]) -> None:
    """Run what may refuse in one line."""
    refusal = ""
    try:
        call()
    except ValueError as error:
        refusal = str(error)
    assert "\n" not in refusal


@pytest.mark.parametrize("size", [1, 2, 300])
def test_a_small_file_takes_little_memory(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    path.write_bytes(b"k" * size)
    with pytest.raises(ValueError, match="must be a file of weights"):
        checkpoint.read(path)  # what torch imports
    with memory_of(size), pytest.raises(ValueError, match="must be a file of weights"):
        checkpoint.read(path)


def test_an_archive_that_says_it_lies_on_three_disks(tmp_path: Path) -> None:
    """Python's zipfile raises where it is asked whether this is an archive."""
    data = bytearray(_bytes())
    disks = data.rindex(b"PK\x06\x07") + 16
    data[disks] = 3
    (tmp_path / "a.pth").write_bytes(data)
    with pytest.raises(zipfile.BadZipFile, match="disks"):
        zipfile.is_zipfile(tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth must be a file of weights saved by torch"):
        checkpoint.read(tmp_path / "a.pth")


@pytest.mark.parametrize("seconds", EFFORTS)
@pytest.mark.parametrize("kind", SEEDS)
def test_bytes(kind: str, seconds: float, tmp_path: Path) -> None:
    ending, make = SEEDS[kind]
    path = tmp_path / f"a{ending}"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        found = _read(path)
        if found is None:
            return
        for name, tensor in found.items():
            assert isinstance(name, str)
            assert tensor.layout == torch.strided
            tensor.clone()
        _allowed(lambda: checkpoint.convert(found))
        _allowed(lambda: checkpoint.load(SubMConv3d(6, 4, 1), found, strict=False))

    fuzz(check, seconds, 250, data=mutations(make()))


SHAPES = st.lists(st.integers(0, 9), max_size=6)
NAMES = st.sampled_from(
    ["kernel", "0.kernel", "weight", "0.weight", "bias", "0.bias", "conv.weight", "a.kernel", "",
     "module.0.weight", "module.module.", "backbone.encoder.0.0.weight", "x.running_mean"]
)  # fmt: skip


@pytest.mark.parametrize("seconds", EFFORTS)
def test_any_shapes_under_any_layout(seconds: float) -> None:
    """What no library would store is refused by name, never by a failed reshape."""
    models = [SubMConv3d(4, 8, 3), SparseConv3d(4, 8, 1), torch.nn.Sequential(SubMConv3d(4, 4, 3))]

    def check(shapes: dict[str, list[int]], layout: str, turn: bool, which: int) -> None:
        state = {name: torch.zeros(shape) for name, shape in shapes.items()}
        turned: Any = {"source": layout, "reverse_axes": turn}
        _allowed(lambda: checkpoint.convert(state, **turned))
        _allowed(lambda: checkpoint.load(models[which], state, strict=False, **turned))

    layouts = st.sampled_from(["auto", *checkpoint.LAYOUTS, "no such layout"])
    fuzz(
        check, seconds, 400, shapes=st.dictionaries(NAMES, SHAPES, max_size=4), layout=layouts,
        turn=st.booleans(), which=st.integers(0, 2),
    )  # fmt: skip


class _Runs:
    """What a hostile pickle does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("ran",))


def _endless() -> dict[str, Any]:
    table: dict[str, Any] = {}
    table["model"] = table
    return table


def _bomb() -> bytes:
    """A valid archive whose entries are packed a thousandfold."""
    plain = io.BytesIO(_bytes(table={"w": torch.zeros(2**24)}))
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for entry in source.infolist():
            out.writestr(entry.filename, source.read(entry))
    return packed.getvalue()


def _lying_legacy() -> bytes:
    """A legacy file that announces a storage of 2^33 values and ends."""
    data = _bytes(legacy=True, table={"w": torch.zeros(200)})
    announced = b"K\xc8"  # BININT1 200
    assert announced in data
    return data.replace(announced, b"\x8a\x05\x00\x00\x00\x00\x02")


HOSTILE = {
    "code": lambda: _bytes(table={"w": _Runs()}),
    "bare code": lambda: pickle.dumps(_Runs()),
    "endless": lambda: _bytes(table=_endless()),
    "repeated": lambda: _bytes(table={"w": torch.zeros(1).expand(2**32)}),
    "packed": _bomb,
    "meta": lambda: _bytes(table={"w": torch.zeros(3, device="meta")}),
    "sparse": lambda: _bytes(table={"w": torch.eye(3).to_sparse()}),
    "quantised": lambda: _bytes(
        table={"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}
    ),
    "numbers": lambda: _bytes(table={"w": 3, 4: torch.ones(2)}),
    "list": lambda: _bytes(table=[torch.ones(2)]),
    "nothing": lambda: _bytes(table={}),
    "long string": lambda: b"\x80\x02\x8b\xff\xff\xff\x7f",
    "huge string": lambda: b"\x80\x04\x8e" + (2**50).to_bytes(8, "little"),
    "deep": lambda: b"\x80\x02" + b"(" * 100_000,
    "lying legacy": _lying_legacy,
    "zip head": lambda: b"PK\x03\x04" + b"\0" * 200,
}

LIMITED = """
    import resource, sys
    from sparse3d import checkpoint
    size = __import__("os").path.getsize(sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        print(checkpoint.read(sys.argv[1]))
    except ValueError as error:
        assert "\\n" not in str(error)
        print("refused")
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < 4 * size + 24 * 2**20, (grown, size)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pth"
    path.write_bytes(HOSTILE[name]())
    assert _read(path) is None
    assert "ran" not in capfd.readouterr().out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["repeated", "packed", "lying legacy", "huge string"])
def test_memory_of_hostile_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    path.write_bytes(HOSTILE[name]())
    status, out, err = run(LIMITED, path)
    assert (status, out) == (0, "refused\n"), err


def test_valid_files_still_load(tmp_path: Path) -> None:
    for kind, (ending, make) in SEEDS.items():
        if kind == "pickle":
            continue
        path = tmp_path / f"{kind}{ending}"
        path.write_bytes(make())
        found = checkpoint.read(path)
        assert all(torch.equal(found[name], STATE[name]) for name in STATE)
