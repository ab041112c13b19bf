"""Files that try to run something, or to be written elsewhere: refused, and nothing happens."""

import pickle
import subprocess
import sys

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


def test_a_checkpoint_runs_nothing(trapped, mark):
    with pytest.raises(ValueError, match="that holds tensors only"):
        checkpoint.read(trapped)
    assert not mark.exists()


@pytest.mark.parametrize("trapped", ["torch.save"], indirect=True)
@pytest.mark.parametrize("command", ["convert", "segment"])
def test_the_command_line_runs_nothing(command, trapped, mark, tmp_path):
    arguments = {
        "convert": [trapped, tmp_path / "out.pth"],
        "segment": ["--demo", "--checkpoint", trapped, "--out", tmp_path / "out"],
    }[command]
    done = subprocess.run(
        [sys.executable, "-m", "sparse3d", command, *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert not mark.exists()
    assert not (tmp_path / "out.pth").exists()


def test_a_recipe_builds_no_objects(tmp_path, mark):
    file = tmp_path / "recipe.yaml"
    file.write_text(f"model: !!python/object/apply:builtins.open ['{mark}', 'w']\n")
    with pytest.raises(ValueError, match=r"recipe\.yaml"):
        load_config(str(file))
    assert not mark.exists()
