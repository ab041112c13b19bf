"""Files of weights, opened without running anything in them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _check

PathLike = str | Path
State = Mapping[str, torch.Tensor]
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights")


def read(file: PathLike | State) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint by name.

    Args:
        file: `.safetensors`, or what `torch.save` wrote: a state_dict, also inside `state_dict`,
            `model` and the like; or a mapping that is one.

    Raises:
        ValueError: if the file cannot be read without running code, or holds no tensors by name.
        ModuleNotFoundError: if a `.safetensors` file is given and safetensors is not installed.
    """
    if isinstance(file, Mapping):
        return _unwrapped(file, "state")
    path = Path(file)
    if path.suffix == ".safetensors":
        return dict(_safetensors().load_file(str(path)))
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path} must be a readable file, got: {error.strerror}") from None
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        raise ValueError(
            f"{path} must be a file of weights saved by torch that holds tensors only, got another "
            "kind of file, or one that would run code when opened; save the state_dict alone"
        ) from None
    return _unwrapped(table, str(path))


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        message = "safetensors must be installed for .safetensors files; pip install safetensors"
        raise ModuleNotFoundError(message) from None
    return safetensors.torch


def _unwrapped(table: Any, name: str) -> dict[str, torch.Tensor]:
    while isinstance(table, Mapping):
        inner = next((table[k] for k in _WRAPPERS if isinstance(table.get(k), Mapping)), None)
        if inner is None:
            break
        table = inner
    if not isinstance(table, Mapping):
        _check.fail(name, "tensors by name", type(table).__name__)
    found = {k: v for k, v in table.items() if isinstance(v, torch.Tensor)}
    if not found:
        _check.fail(name, "tensors by name", f"entries {list(table)[:5]}")
    return found


def save(model: nn.Module | State, file: PathLike) -> None:
    """Write a model's state_dict, or tensors by name, as `.safetensors` or by `torch.save`."""
    state = model.state_dict() if isinstance(model, nn.Module) else dict(model)
    path = Path(file)
    if path.suffix == ".safetensors":
        _safetensors().save_file({k: v.contiguous() for k, v in state.items()}, str(path))
    else:
        torch.save(state, path)
