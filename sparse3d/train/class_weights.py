"""Weights of the classes in the cross entropy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.data.batch import IGNORE, target_table
from sparse3d.data.kitti import ScanError
from sparse3d.data.progress import bar
from sparse3d.data.semantic_kitti import LABEL_MAPS
from sparse3d.data.team import Team
from sparse3d.train.config import TrainConfig
from sparse3d.train.streams import Stream

__all__ = ["class_weights"]

_MEASURED = 64  # clouds by which the shares of the classes are measured


def class_weights(
    config: TrainConfig, stream: Stream, team: Team, broken: Callable[[str], None]
) -> torch.Tensor | None:
    """Float32 ``[K]`` as the config gives them, or by the shares of points in the first clouds.

    Args:
        config: Its ``loss`` says which.
        stream: The clouds.
        team: One of them measures for all.
        broken: Called with the reason for each scan that cannot be read.
    """
    loss = config.loss
    if loss.weights:
        return torch.tensor(loss.weights)
    if not loss.power:
        return None
    share = _shares(config, stream, broken) if team.rank == 0 else np.zeros(0, np.int64)
    counts = torch.from_numpy(team.gather(share)[0]).float()
    weight = (counts.sum() / counts.clamp(min=1)) ** loss.power
    return (weight / weight.mean()).clamp(0.3, 3)


def _shares(
    config: TrainConfig, stream: Stream, broken: Callable[[str], None]
) -> npt.NDArray[np.int64]:
    """Points of each output channel."""
    table = target_table(config.recipe.classes, LABEL_MAPS[config.data.label_map])
    counts = np.zeros(len(config.recipe.classes), np.int64)
    clouds = min(_MEASURED, 4 * len(stream))
    with bar("class weights", clouds) as progress:
        for count in range(clouds):
            try:
                labels = table[stream.cloud(count).labels & 0xFFFF]
                counts += np.bincount(labels[labels != IGNORE], minlength=len(counts))
            except (ScanError, OSError) as error:
                broken(" ".join(str(error).split()))
            progress.step("")
    return counts
