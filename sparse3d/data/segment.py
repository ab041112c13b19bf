"""From a scan to a label for each of its points."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.data.clip import clipped
from sparse3d.data.config import SegmentConfig
from sparse3d.data.files import write_labels, write_ply
from sparse3d.data.inputs import to_sparse
from sparse3d.data.kitti import Scan
from sparse3d.data.picture import write_picture
from sparse3d.data.semantic_kitti import colors_of
from sparse3d.data.views import View
from sparse3d.models.minkunet import MinkUNet

__all__ = [
    "Segmenter",
    "Stages",
    "build",
    "choose_device",
    "load_weights",
    "write_results",
]

PathLike = str | os.PathLike[str]


@dataclass
class Stages:
    """Seconds spent in each stage, added up over scans."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of the block to ``stage``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` takes CUDA, then an Apple GPU, then the CPU.

    Raises:
        ValueError: The device is not here.
    """
    here = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if here[kind]))
    if name not in here:
        raise ValueError(f"device must be auto, cpu, cuda or mps, got {name!r}")
    if not here[name]:
        found = ", ".join(kind for kind, works in here.items() if works)
        raise ValueError(f"device must be present on this machine ({found}), got {name!r}")
    return torch.device(name)


def load_weights(
    path: PathLike, config: SegmentConfig | None = None, model: torch.nn.Module | None = None
) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint file; nothing in it is executed.

    Args:
        path: The file.
        config: Recipe that they must fit, for the message.
        model: Network that they must fit; they are then returned in float32.

    Raises:
        ValueError: The file is missing or holds no tensors by name, or not those of the network;
            one line.
    """
    path = Path(path)
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        raise ValueError(
            f"{path}: must be a file of weights saved by torch, got another kind of file, or one "
            "that would run code when opened; save model.state_dict()"
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(table, dict) and isinstance(table.get(key), dict):
            table = table[key]
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{path}: must hold tensors by name, got {type(table).__name__}")
    wrong = [key for key, value in table.items() if not isinstance(value, torch.Tensor)]
    if wrong:
        raise ValueError(f"{path}: must hold tensors by name, got {wrong[0]!r} of another kind")
    if config is None or model is None:
        return table
    state = {key: value.float() if value.is_floating_point() else value
             for key, value in table.items()}  # fmt: skip
    _check_fit(path, config, model, state)
    return state


def _check_fit(
    path: PathLike, config: SegmentConfig, model: torch.nn.Module, state: dict[str, torch.Tensor]
) -> None:
    """Refuse weights of another network, naming the first entry that differs."""
    wanted = model.state_dict()
    for key in (*wanted, *state):
        have, want = state.get(key), wanted.get(key)
        if have is not None and want is not None and have.shape == want.shape:
            continue
        got = "none" if have is None else f"shape {list(have.shape)}"
        fit = "no such entry" if want is None else f"shape {list(want.shape)}"
        raise ValueError(
            f"{path}: must fit the network of config {config.name!r}: {key} must have {fit}, "
            f"got {got}; name the config it was trained with (--config)"
        )


class Segmenter:
    """A network and all that is around it.

    Args:
        config: The recipe.
        model: Its network.
        device: Where the network runs.
    """

    def __init__(self, config: SegmentConfig, model: torch.nn.Module, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.model = model.eval().to(device)
        self._raw = np.array(config.classes, np.uint32)

    @classmethod
    def load(
        cls, config: SegmentConfig, checkpoint: PathLike | None, device: torch.device
    ) -> Segmenter:
        """With weights from a file, or with those that ship with the package."""
        path = checkpoint if checkpoint is not None else config.weights_path()
        if path is None:
            raise ValueError(f"checkpoint must be given for the config {config.name!r}, got none")
        model = build(config)
        state = load_weights(path, config, model)
        model.load_state_dict(state)
        return cls(config, model, device)

    def predict(
        self, points: npt.NDArray[np.float32], stages: Stages | None = None
    ) -> npt.NDArray[np.uint32]:
        """Raw label of each point ``[N]``; 0 for those that the recipe's clip leaves out."""
        stages = stages if stages is not None else Stages()
        labels = np.zeros(len(points), np.uint32)
        seen, kept = clipped(points, self.config.clip, self.config.outside)
        if len(seen) == 0:
            return labels
        labels[kept] = self._raw[self.scores(seen, stages).argmax(dim=1).numpy()]
        return labels

    def scores(self, points: npt.NDArray[np.float32], stages: Stages | None = None) -> torch.Tensor:
        """Log-probability of each class for each point ``[N, K]``, summed over the views; on the
        CPU. Nothing is clipped.
        """
        stages = stages if stages is not None else Stages()
        total = self._scores(self.config.views[0].apply(points), stages)
        for view in self.config.views[1:]:
            total = total + self._scores(view.apply(points), stages)
        return total

    def _scores(self, points: npt.NDArray[np.float32], stages: Stages) -> torch.Tensor:
        """Log-probability of each class for each point, on the CPU."""
        config = self.config
        with stages.measure("voxelise"):
            tensor, grid = to_sparse(
                points,
                voxel_size=config.voxel_size,
                features=config.features,
                rounding=config.rounding,
                representative=config.representative,
                dtype=config.dtype,
            )
        with stages.measure("network"), torch.inference_mode():
            x = tensor.to(self.device)
            if config.devoxelise == "trilinear":
                places = torch.from_numpy(grid.positions(points, config.rounding))
                between: torch.Tensor = self.model(x, places.to(self.device))
                return between.float().log_softmax(dim=1).cpu()
            scores: torch.Tensor = self.model(x)
            return scores.float().log_softmax(dim=1).cpu()[torch.from_numpy(grid.inverse)]

    def label(self, scan: Scan, stages: Stages | None = None) -> npt.NDArray[np.uint32]:
        """Raw label of each point of the file; points dropped while reading are unlabeled (0)."""
        labels = np.zeros(scan.total, np.uint32)
        labels[scan.rows] = self.predict(scan.points, stages)
        return labels


def turned(points: npt.NDArray[np.float32], view: int) -> npt.NDArray[np.float32]:
    """The scan turned about the vertical by 45 degrees a view; from the second on, mirrored."""
    return View.numbered(view).apply(points)


def build(config: SegmentConfig) -> torch.nn.Module:
    """The network of a recipe, untrained.

    Raises:
        ValueError: The recipe's model entries do not make a network, or channels do not fit.
    """
    try:
        return MinkUNet(**config.model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"config {config.name!r}: model: {error}") from None


def write_results(
    folder: Path, stem: str, scan: Scan, labels: npt.NDArray[np.uint32], title: str
) -> list[Path]:
    """Write ``.png``, ``.ply`` and ``.label`` of one scan: all of them, or none."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = labels[scan.rows]
    made: list[Path] = []
    picture, cloud, label = (folder / f"{stem}.{kind}" for kind in ("png", "ply", "label"))
    try:
        write_picture(picture, scan.points, shown, title)
        made.append(picture)
        write_ply(cloud, scan.points, colors_of(shown), shown)
        made.append(cloud)
        write_labels(label, labels)
        made.append(label)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    return made
