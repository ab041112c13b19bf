"""Labelled clouds made into one batch of voxels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.data.augment import Cloud
from sparse3d.data.clip import clipped
from sparse3d.data.config import SegmentConfig
from sparse3d.data.grid import Grid, random_points, represent, to_grid
from sparse3d.data.inputs import point_features
from sparse3d.data.semantic_kitti import LabelMap
from sparse3d.ops.coordinates import coordinate_unique
from sparse3d.tensor import SparseConvTensor

__all__ = ["IGNORE", "Batch", "Voxels", "collate", "in_range", "target_table", "voxelise"]

IGNORE = -1
"""Target of a voxel that no loss counts."""


@dataclass(frozen=True)
class Voxels:
    """One cloud as voxels.

    Attributes:
        features: float32 ``[V, C]``.
        coords: int32 ``[V, 3]``, columns z, y, x, from zero on.
        targets: int64 ``[V]``, output channel or `IGNORE`.
        note: Why the cloud is empty, where a file was broken.
        joins: Whether it is one with the cloud before it in a batch.
    """

    features: npt.NDArray[np.float32]
    coords: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int64]
    note: str = ""
    joins: bool = False

    @classmethod
    def none(cls, channels: int, note: str) -> Voxels:
        """No voxels, and why."""
        empty = np.zeros((0, channels), np.float32)
        return cls(empty, np.zeros((0, 3), np.int32), np.zeros(0, np.int64), note)


@dataclass
class Batch:
    """Voxels of several clouds.

    Attributes:
        features: float32 ``[V, C]``.
        indices: int32 ``[V, 4]``: batch, z, y, x; sorted by batch.
        targets: int64 ``[V]``, output channel or `IGNORE`.
        clouds: Number of clouds, empty ones included.
        notes: One line for each cloud that could not be read.
    """

    features: torch.Tensor
    indices: torch.Tensor
    targets: torch.Tensor
    clouds: int
    notes: tuple[str, ...] = ()

    def pin_memory(self) -> Batch:
        """Page-locked, for copies to a GPU that do not wait."""
        return Batch(
            self.features.pin_memory(),
            self.indices.pin_memory(),
            self.targets.pin_memory(),
            self.clouds,
            self.notes,
        )

    def tensor(self, device: torch.device) -> SparseConvTensor:
        """The network's input."""
        return SparseConvTensor(
            self.features.to(device, non_blocking=True),
            self.indices.to(device, non_blocking=True),
            None,
            self.clouds,
            check=False,
        )


def target_table(classes: Sequence[int], known: LabelMap) -> npt.NDArray[np.int64]:
    """Output channel of every raw id, int64 ``[65536]``; `IGNORE` for what is not trained on.

    A raw id belongs to the channel of its own name, else to the one whose class the label map
    merges it with: ``moving-car`` to ``car``.
    """
    table = np.full(2**16, IGNORE, np.int64)
    channel: dict[int, int] = {}
    for number, raw in enumerate(classes):
        if train := known.forward.get(raw, 0):
            channel.setdefault(train, number)
    for raw, train in known.forward.items():
        if train:
            table[raw] = channel.get(train, IGNORE)
    for number, raw in enumerate(classes):
        if known.forward.get(raw, 0):
            table[raw] = number
    return table


def in_range(cloud: Cloud, config: SegmentConfig) -> Cloud:
    """What the clip of a recipe leaves of a cloud."""
    points, kept = clipped(cloud.points, config.clip, config.outside)
    return Cloud(points, cloud.labels[kept])


def voxelise(
    cloud: Cloud,
    config: SegmentConfig,
    table: npt.NDArray[np.int64],
    rng: np.random.Generator,
    most: int | None = None,
) -> Voxels:
    """A cloud as the network of a recipe sees it in training.

    The target of a voxel is that of the point that stands for it (the first, or a random one), and
    the commonest of its points (the lowest of equals) where their mean does.

    Args:
        cloud: Points and raw labels, moved and clipped already.
        config: The recipe.
        table: From `target_table`.
        rng: Chooses points that stand for voxels, and which voxels stay.
        most: Largest number of voxels; a random choice of them stays, in order.
    """
    points = cloud.points
    if len(points) == 0:
        return Voxels.none(len(config.features), "")
    labels = table[cloud.labels & 0xFFFF]
    grid = to_grid(points, config.voxel_size, rounding=config.rounding, dtype=config.dtype)
    values = point_features(points, config.features, config.voxel_size, config.rounding)
    if config.representative == "mean":
        features = np.asarray(represent(values, grid, "mean"), np.float32)
        targets = _commonest(labels, grid, len(config.classes))
    else:
        rows = grid.first if config.representative == "first" else random_points(grid, rng)
        features, targets = values[rows], labels[rows]
    coords = np.ascontiguousarray(grid.coords[:, ::-1])
    if most is not None and len(coords) > most:
        chosen = np.sort(rng.choice(len(coords), most, replace=False))
        return Voxels(features[chosen], coords[chosen], targets[chosen])
    return Voxels(features, coords, targets)


def _commonest(labels: npt.NDArray[np.int64], grid: Grid, kinds: int) -> npt.NDArray[np.int64]:
    counted = labels != IGNORE
    votes = np.bincount(
        grid.inverse[counted] * kinds + labels[counted], minlength=len(grid.coords) * kinds
    ).reshape(-1, kinds)
    most = votes.argmax(axis=1)
    return np.where(votes.max(axis=1) > 0, most, IGNORE).astype(np.int64)


def collate(clouds: Sequence[Voxels]) -> Batch:
    """Clouds as one batch, in their order; an empty one keeps its number.

    One that joins the cloud before it has that one's number; of a voxel in both, the first stays.
    """
    numbers = np.cumsum([number > 0 and not c.joins for number, c in enumerate(clouds)])
    rows = [np.insert(c.coords, 0, n, axis=1) for n, c in zip(numbers, clouds, strict=True)]
    features = torch.from_numpy(np.concatenate([c.features for c in clouds]))
    indices = torch.from_numpy(np.concatenate(rows))
    targets = torch.from_numpy(np.concatenate([c.targets for c in clouds]))
    if any(c.joins for c in clouds):
        first, _ = coordinate_unique(indices)
        features, indices, targets = features[first], indices[first], targets[first]
    notes = tuple(c.note for c in clouds if c.note)
    return Batch(features, indices, targets, int(numbers[-1]) + 1, notes)
