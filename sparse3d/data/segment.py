"""From a scan to a label for each of its points."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparse3d import checkpoint
from sparse3d.checkpoint._refusal import Refusal, say_which
from sparse3d.data.clip import clipped
from sparse3d.data.config import SegmentConfig
from sparse3d.data.files import write_labels, write_ply
from sparse3d.data.grid import Grid, passes, to_grid
from sparse3d.data.inputs import point_features, to_sparse
from sparse3d.data.kitti import Scan, ScanError
from sparse3d.data.networks import NETWORKS
from sparse3d.data.picture import write_picture
from sparse3d.data.semantic_kitti import colors_of
from sparse3d.data.views import View
from sparse3d.tensor import SparseConvTensor

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


def load_weights(path: PathLike) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint file, ours or another library's; nothing in it is executed.

    Raises:
        ValueError: The file is missing or holds no tensors by name; one line.
    """
    try:
        if not Path(path).is_fifo():  # would wait for a writer
            Path(path).open("rb").close()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    return checkpoint.read(Path(path))


def load_into(model: torch.nn.Module, config: SegmentConfig, path: PathLike) -> None:
    """Take over the weights of a checkpoint file, whichever library stored them.

    Ours see (z, y, x), the other libraries' networks (x, y, z): the axes of their kernels turn.

    Raises:
        ValueError: The file is missing, holds no tensors by name, or not those of the network of
            the recipe; one line.
    """
    state, names = load_weights(path), model.state_dict()
    own = all(key.removeprefix("module.") in names for key in state)
    try:
        layout = "spconv" if own else checkpoint.detect(state, model)
        checkpoint.load(model, state, layout, reverse_axes=not own)
    except ValueError as error:
        found = _classes_in(state, config)
        last = NETWORKS[config.network].bias.removesuffix("bias")
        if last in str(error) and found not in (None, len(config.classes)):
            raise ValueError(
                f"{path}: must have {len(config.classes)} classes, num_classes of config "
                f"{config.name!r}, got {found}; name the config it was trained with (--config), "
                f"or write num_classes: {found} and its {found} classes there"
            ) from None
        raise ValueError(
            f"{path}: must fit the network of config {config.name!r}: {_for_commands(error)}; name "
            "the config it was trained with (--config)"
        ) from None


def _classes_in(state: dict[str, torch.Tensor], config: SegmentConfig) -> int | None:
    """How many classes a checkpoint has logits for, where its last layer has a name we know."""
    last = (f".{NETWORKS[config.network].bias}", ".conv_seg.bias")
    for name, value in state.items():
        if f".{name}".endswith(last) and value.ndim == 1:
            return len(value)
    return None


def _for_commands(error: ValueError) -> str:
    """What `checkpoint.load` says, with ways out that a command has."""
    if not isinstance(error, Refusal):
        return str(error)
    if not error.layouts:
        return error.reason
    way_out = say_which(error.layouts, "--layout {}")
    return f"{error.reason}; rewrite it with sparse3d convert, {way_out}"


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
        cls, config: SegmentConfig, weights: PathLike | None, device: torch.device
    ) -> Segmenter:
        """With weights from a file, or with those that ship with the package."""
        path = weights if weights is not None else config.weights_path()
        if path is None:
            raise ValueError(f"checkpoint must be given for the config {config.name!r}, got none")
        model = build(config)
        load_into(model, config, path)
        return cls(config, model, device)

    def predict(
        self, points: npt.NDArray[np.float32], stages: Stages | None = None
    ) -> npt.NDArray[np.uint32]:
        """Raw label of each point ``[N]``; 0 for those that the recipe's clip leaves out."""
        stages = stages if stages is not None else Stages()
        labels = np.zeros(len(points), np.uint32)
        exact: npt.NDArray[np.floating] = points.astype(self.config.dtype, copy=False)
        seen, kept = clipped(exact, self.config.clip, self.config.outside)
        if len(seen) == 0:
            return labels
        labels[kept] = self._raw[self.scores(seen, stages).argmax(dim=1).numpy()]
        return labels

    def scores(
        self, points: npt.NDArray[np.floating], stages: Stages | None = None
    ) -> torch.Tensor:
        """What the recipe averages (log-probability or probability) of each class for each point
        ``[N, K]``, summed over the views and passes; on the CPU. Nothing is clipped.
        """
        stages = stages if stages is not None else Stages()
        config = self.config
        near: npt.NDArray[np.floating] = points.astype(config.dtype, copy=False)
        if config.thin:
            cells = to_grid(near, config.thin, rounding=config.rounding, dtype=config.dtype)
            near = near[cells.first]
        total = self._scores(config.views[0].apply(near), stages)
        for view in config.views[1:]:
            total = total + self._scores(view.apply(near), stages)
        return total[torch.from_numpy(cells.inverse)] if config.thin else total

    def _scores(self, points: npt.NDArray[np.floating], stages: Stages) -> torch.Tensor:
        """Of one view."""
        config = self.config
        each = config.representative == "each"
        with stages.measure("voxelise"):
            tensor, grid = to_sparse(
                points,
                voxel_size=config.voxel_size,
                features=config.features,
                rounding=config.rounding,
                representative="first" if each else config.representative,
                dtype=config.dtype,
            )
        if each:
            return self._each(points, tensor, grid, stages)
        with stages.measure("network"), torch.inference_mode():
            x = tensor.to(self.device)
            if config.devoxelise == "trilinear":
                places = torch.from_numpy(grid.positions(points, config.rounding))
                return self._averaged(self.model(x, places.to(self.device)))
            return self._averaged(self.model(x))[torch.from_numpy(grid.inverse)]

    def _each(
        self, points: npt.NDArray[np.floating], tensor: SparseConvTensor, grid: Grid, stages: Stages
    ) -> torch.Tensor:
        """Pass by pass: a point has the sum of those in which it stood for its voxel."""
        config = self.config
        with stages.measure("voxelise"):
            values = point_features(points, config.features, config.voxel_size, config.rounding)
        total = torch.zeros(len(points), len(config.classes))
        with stages.measure("network"), torch.inference_mode():
            x = tensor.to(self.device)
            for rows in passes(grid):
                seen = torch.from_numpy(values[rows]).to(self.device)
                total[torch.from_numpy(rows)] += self._averaged(self.model(x.replace_feature(seen)))
        return total

    def _averaged(self, logits: torch.Tensor) -> torch.Tensor:
        """What of the logits is summed over views and passes, on the CPU."""
        if self.config.average == "probability":
            return logits.float().softmax(dim=1).cpu()
        return logits.float().log_softmax(dim=1).cpu()

    def label(self, scan: Scan, stages: Stages | None = None) -> npt.NDArray[np.uint32]:
        """Raw label of each point of the file; points dropped while reading are unlabeled (0).

        Raises:
            ScanError: Its points do not fit the grid; one line that names the file.
        """
        labels = np.zeros(scan.total, np.uint32)
        try:
            labels[scan.rows] = self.predict(scan.points, stages)
        except ValueError as error:
            raise ScanError(f"{scan.path}: {error}") from None
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
        return NETWORKS[config.network].build(**config.model)
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
