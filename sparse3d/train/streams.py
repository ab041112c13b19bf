"""Endless streams of labelled clouds: which cloud comes when depends on its number alone.

So a run that goes on from a checkpoint, or has other workers, or shares its steps among more
processes, sees the same clouds moved in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from torch.utils.data import Dataset, Sampler

from sparse3d.data.augment import Cloud
from sparse3d.data.batch import Voxels, in_range, target_table, voxelise
from sparse3d.data.dataset import SemanticKITTI
from sparse3d.data.evaluate import FIRST_TRAINING_SEED
from sparse3d.data.files import atomic
from sparse3d.data.kitti import ScanError
from sparse3d.data.semantic_kitti import LABEL_MAPS, LabelMap
from sparse3d.data.simulate import Sensor, random_sensor, simulate
from sparse3d.train.config import TrainConfig

__all__ = ["Items", "Scans", "Steps", "Stream", "Streets", "one_street", "open_stream"]

_ORDER, _MOVES = 0x0DE4, 0xA06  # what a generator is for: part of its seed


class Stream(Protocol):
    """Labelled clouds by number."""

    def __len__(self) -> int:
        """Clouds in an epoch."""
        ...

    def cloud(self, count: int) -> Cloud:
        """The cloud that comes as number ``count``, from 0 on, without end."""
        ...

    def partner(self, count: int, rng: np.random.Generator) -> Cloud:
        """Another cloud, to be mixed with that one."""
        ...


class Scans:
    """Scans of SemanticKITTI, shuffled anew in each epoch.

    Args:
        data: The scans.
        seed: Of the order.
        known: The raw ids that may occur.
    """

    def __init__(self, data: SemanticKITTI, seed: int, known: LabelMap) -> None:
        self._data, self._seed, self._known = data, seed, known
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._data)

    def cloud(self, count: int) -> Cloud:
        epoch, place = divmod(count, len(self._data))
        if epoch != self._epoch:
            rng = np.random.default_rng([self._seed, _ORDER, epoch])
            self._epoch, self._order = epoch, rng.permutation(len(self._data))
        return self._read(int(self._order[place]))

    def partner(self, count: int, rng: np.random.Generator) -> Cloud:
        return self._read(int(rng.integers(len(self._data))))

    def _read(self, index: int) -> Cloud:
        sample = self._data[index]
        assert sample.labels is not None
        try:
            self._known.to_train(sample.labels)
        except ValueError as error:
            raise ScanError(f"{self._data.frames[index].label}: {error}") from None
        return Cloud(sample.points, sample.labels)


def one_street(seed: int, beams: int = 0, azimuths: int = 0) -> Cloud:
    """A simulated street under a random lidar, or under one of so many beams and firings."""
    sensor = random_sensor(np.random.default_rng(seed))
    if beams:
        sensor = Sensor(beams=beams, azimuths=azimuths)
    street = simulate(seed, sensor)
    return Cloud(street.points, street.labels)


class Streets:
    """Simulated streets; new ones come in at a steady share until all are there.

    Args:
        streets: Number of different streets.
        fresh: Share of clouds that are new.
        seed: Of the choice among the old ones.
        cache: Folder where simulated streets are kept.
        beams: Beams of the lidar; 0 means a random lidar for each street.
        azimuths: Its firings per turn.
    """

    def __init__(
        self, streets: int, fresh: float, seed: int, cache: Path, beams: int = 0, azimuths: int = 0
    ) -> None:
        self._streets, self._seed, self._cache = streets, seed, cache
        self._beams, self._azimuths = beams, azimuths
        self._period = max(1, round(1 / fresh))

    def __len__(self) -> int:
        return self._streets

    def cloud(self, count: int) -> Cloud:
        newest, rest = divmod(count, self._period)
        if rest == 0 and newest < self._streets:
            return self._street(newest)
        return self.partner(count, np.random.default_rng([self._seed, _ORDER, count]))

    def partner(self, count: int, rng: np.random.Generator) -> Cloud:
        known = min(count // self._period + 1, self._streets)
        return self._street(int(rng.integers(known)))

    def _street(self, number: int) -> Cloud:
        # A run begun anew in the same folder may have another lidar.
        kind = f"-{self._beams}x{self._azimuths}" if self._beams else ""
        path = self._cache / f"{number:06d}{kind}.npz"
        if path.exists():
            # One that is damaged, whatever numpy says of it, is simulated again.
            with suppress(Exception), path.open("rb") as packed, np.load(packed) as kept:
                points, labels = kept["points"], kept["labels"]
                whole = points.shape == (*labels.shape, 4)
                if whole and (points.dtype, labels.dtype) == (np.float32, np.uint32):
                    return Cloud(points, labels)
        cloud = one_street(FIRST_TRAINING_SEED + number, self._beams, self._azimuths)
        self._cache.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            np.savez(file, points=cloud.points, labels=cloud.labels)
        return cloud


def open_stream(config: TrainConfig, out: Path) -> Stream:
    """The clouds that a config names.

    Raises:
        ValueError: Folders are missing; one line.
    """
    data = config.data
    if data.kind == "kitti":
        scans = SemanticKITTI(data.root, "train", sequences=data.train)
        return Scans(scans, config.seed, LABEL_MAPS[data.label_map])
    cache = out / "streets"
    return Streets(data.streets, data.fresh, config.seed, cache, data.beams, data.azimuths)


class Items(Dataset[Voxels]):
    """A stream as voxels, moved and mixed; a broken scan is an empty cloud with a note.

    Args:
        stream: The clouds.
        config: What is done with them.
    """

    def __init__(self, stream: Stream, config: TrainConfig) -> None:
        self._stream, self._config = stream, config
        recipe = config.recipe
        self._table = target_table(recipe.classes, LABEL_MAPS[config.data.label_map])

    def __getitem__(self, count: int) -> Voxels:
        config = self._config
        rng = np.random.default_rng([config.seed, _MOVES, count])
        try:
            cloud = self._stream.cloud(count)
            moved = config.augment(
                cloud,
                rng,
                lambda: self._stream.partner(count, rng),
                lambda turned: in_range(turned, config.recipe),
            )
        except (ScanError, OSError) as error:
            return Voxels.none(len(config.recipe.features), " ".join(str(error).split()))
        made = voxelise(moved, config.recipe, self._table, rng, config.max_voxels or None)
        second = count % config.batch % 2 == 1
        joins = second and config.augment.mix3d > 0 and rng.random() < config.augment.mix3d
        return replace(made, joins=True) if joins else made


class Steps(Sampler[list[int]]):
    """Numbers of the clouds of each step that one process takes.

    Args:
        first: The step to begin with.
        last: The step before which it ends.
        batch: Clouds of one process in a step.
        rank: The process.
        size: How many processes share a step.
    """

    def __init__(self, first: int, last: int, batch: int, rank: int = 0, size: int = 1) -> None:
        self._range, self._batch, self._rank, self._size = range(first, last), batch, rank, size

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self._range:
            start = (step * self._size + self._rank) * self._batch
            yield list(range(start, start + self._batch))
