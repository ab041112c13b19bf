"""Checkpoints: everything that the next step depends on, in one file, whole or not at all."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sparse3d.data.files import atomic

__all__ = ["State", "load_state", "save_state", "save_weights"]

_FORMAT = 1


@dataclass
class State:
    """A run between two steps.

    Attributes:
        key: What is trained, from `TrainConfig.key`, and in how many processes.
        step: Steps done.
        model: The weights to use: the running average, where there is one.
        fast: The weights that the next step moves, where they are others.
        optimizer: Its state.
        scaler: State of the loss scaling.
        class_weights: ``[K]``, or none.
        losses: Sum and number of the losses since the last line of the log.
        best: Best mean IoU so far, and its step.
        broken: Scans that could not be read, with the reason.
    """

    key: dict[str, Any]
    step: int
    model: dict[str, torch.Tensor]
    fast: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    class_weights: torch.Tensor | None
    losses: tuple[float, int] = (0.0, 0)
    best: tuple[float, int] = (-1.0, 0)
    broken: dict[str, str] = field(default_factory=dict)


def save_state(path: Path, state: State) -> None:
    """Write a checkpoint; a reader sees the old one or the whole new one."""
    table = dict(vars(state)) | {"format": _FORMAT, "key": json.dumps(state.key)}
    with atomic(path) as file:
        torch.save(table, file)


def load_state(path: Path) -> State:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        ValueError: The file is no such checkpoint; one line.
    """
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
        if table.pop("format") != _FORMAT:
            raise KeyError("format")
        table["key"] = json.loads(table["key"])
        return State(**table)
    except (RuntimeError, ValueError, EOFError, KeyError, AttributeError, TypeError,
            pickle.UnpicklingError):  # fmt: skip
        raise ValueError(
            f"{path}: must be a checkpoint of sparse3d train, got another kind of file; "
            "begin anew with --fresh"
        ) from None


def save_weights(path: Path, model: dict[str, torch.Tensor], **about: float | str) -> None:
    """Write weights as `sparse3d segment` and `eval` take them."""
    with atomic(path) as file:
        torch.save({"library": "sparse3d", "model": model, **about}, file)
