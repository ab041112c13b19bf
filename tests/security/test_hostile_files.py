"""Files that try to run something, or to be written elsewhere: nothing happens."""

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch

from sparse3d import checkpoint
from sparse3d.data.config import load_config


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "it-ran"


@pytest.fixture(params=["torch.save", "legacy", "pickle"])
def trapped(request, tmp_path, mark):
    file = tmp_path / "weights.pt"
    state = {"conv.weight": torch.zeros(2, 3), "payload": Trap(mark)}
    if request.param == "pickle":
        file.write_bytes(pickle.dumps(state))
    else:
        torch.save(state, file, _use_new_zipfile_serialization=request.param == "torch.save")
    return file


def test_the_trap_works(trapped, mark):
    try:
        torch.load(trapped, weights_only=False)
    except RuntimeError:  # a bare pickle is none of torch's
        pickle.loads(trapped.read_bytes())
    assert mark.exists()


@pytest.mark.parametrize("trapped", ["legacy", "pickle"], indirect=True)
def test_a_checkpoint_of_old_kinds_is_refused(trapped, mark):
    with pytest.raises(ValueError, match="that holds tensors only"):
        checkpoint.read(trapped)
    assert not mark.exists()


@pytest.mark.parametrize("trapped", ["torch.save"], indirect=True)
def test_a_checkpoint_gives_its_tensors_and_runs_nothing(trapped, mark):
    found = checkpoint.read(trapped)
    assert list(found) == ["conv.weight"]
    assert torch.equal(found["conv.weight"], torch.zeros(2, 3))
    assert not mark.exists()


class Called:
    """Unpickled, it calls what it is given."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __call__(self):
        """Pickle asks for it of what is to be called."""

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("way", ["getattr", "eval", "system", "setstate", "tensor"])
def test_other_ways_to_run_something(way, tmp_path, mark):
    """Each is read without it, or refused; none makes the mark."""
    touch = f"open({str(mark)!r}, 'w')"
    payload = {
        "getattr": lambda: Called(Called(getattr, pathlib.Path(mark), "touch")),
        "eval": lambda: Called(eval, touch),
        "system": lambda: Called(os.system, f"touch {mark}"),
        "setstate": lambda: Trapped(mark),
        "tensor": lambda: Called(
            torch._tensor._rebuild_from_type_v2, open, torch.Tensor, (str(mark), "w"), {}
        ),
    }[way]()
    file = tmp_path / "weights.pt"
    torch.save({"conv.weight": torch.zeros(2, 3), "payload": payload}, file)
    try:
        assert list(checkpoint.read(file)) == ["conv.weight"]
    except ValueError as error:
        assert "that holds tensors only" in str(error)  # noqa: PT017 - both are right
    assert not mark.exists()
    with contextlib.suppress(Exception):
        torch.load(file, weights_only=False)
    assert mark.exists(), "the trap must work"


class Trapped:
    """Its state, set again, makes a file."""

    def __init__(self, mark):
        self.mark = mark

    def __setstate__(self, state):
        state["mark"].touch()


@pytest.mark.parametrize("trapped", ["legacy", "torch.save"], indirect=True)
@pytest.mark.parametrize("command", ["convert", "segment"])
def test_the_command_line_runs_nothing(command, trapped, mark, tmp_path):
    out = tmp_path / "out.pth"
    arguments = {
        "convert": [trapped, out],
        "segment": ["--demo", "--checkpoint", trapped, "--out", tmp_path / "out"],
    }[command]
    done = subprocess.run(
        [sys.executable, "-m", "sparse3d", command, *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert not mark.exists()
    reads = command == "convert" and zipfile.is_zipfile(trapped)
    assert (done.returncode == 0) == reads
    if reads:  # the tensors of it, and nothing else
        assert list(torch.load(out, weights_only=True)) == ["conv.weight"]
    else:
        assert not out.exists()


def test_a_recipe_builds_no_objects(tmp_path, mark):
    file = tmp_path / "recipe.yaml"
    file.write_text(f"model: !!python/object/apply:builtins.open ['{mark}', 'w']\n")
    with pytest.raises(ValueError, match=r"recipe\.yaml"):
        load_config(str(file))
    assert not mark.exists()
