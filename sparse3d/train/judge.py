"""Scores of a network in training, on clouds that it is never trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.data.augment import Cloud
from sparse3d.data.config import SegmentConfig
from sparse3d.data.dataset import SemanticKITTI
from sparse3d.data.evaluate import FIRST_TRAINING_SEED, RawConfusion
from sparse3d.data.metrics import Confusion
from sparse3d.data.networks import NETWORKS
from sparse3d.data.progress import bar
from sparse3d.data.segment import Segmenter
from sparse3d.data.semantic_kitti import CLASS_NAMES, LABEL_MAPS
from sparse3d.data.team import Team
from sparse3d.train.config import TrainConfig
from sparse3d.train.streams import one_street

__all__ = ["FIRST_HELD_OUT", "Judge", "balance"]

FIRST_HELD_OUT = 100
"""Seed of the first street that is scored on; `sparse3d segment --report` begins there too."""


class Judge:
    """Scores networks of one config.

    A recipe whose voxels each point stands for in turn is looked at once, through the first points
    of the voxels: the whole test takes dozens of passes a scan, and is `sparse3d eval`'s.

    Args:
        config: What is trained.
        team: Who shares the work.
        broken: Called with the reason for each scan that cannot be read.
    """

    def __init__(self, config: TrainConfig, team: Team, broken: Callable[[str], None]) -> None:
        self._config, self._team, self._broken = config, team, broken
        self._streets: list[Cloud] = []
        self._scans: SemanticKITTI | None = None
        if config.data.kind == "kitti":
            self._scans = SemanticKITTI(config.data.root, "val", sequences=config.data.val)

    def score(
        self, model: torch.nn.Module, device: torch.device, show: bool = False
    ) -> dict[str, Any]:
        """Mean IoU, IoU by class, and how many classes occur.

        Args:
            model: The network.
            device: Where it runs.
            show: Show a bar; there can be one at a time.
        """
        segmenter = Segmenter(_quick(self._config.recipe), model, device)
        table = RawConfusion(self._config.recipe.classes)
        hidden = not show or self._team.rank > 0
        if self._scans is not None:
            known = LABEL_MAPS[self._config.data.label_map]
            confusion = Confusion(CLASS_NAMES)
            chosen = self._chosen(len(self._scans))
            with bar("score", len(chosen), hidden=hidden) as progress:
                for cloud in self._labelled(self._scans, chosen):
                    predicted = known.to_train(segmenter.predict(cloud.points))
                    confusion.add(predicted, known.to_train(cloud.labels))
                    progress.step(f"mIoU {confusion.mean():.4f}")
        else:
            confusion = table.confusion
            with bar("score", self._config.data.held_out, hidden=hidden) as progress:
                for cloud in self._simulated():
                    table.add(segmenter.predict(cloud.points), cloud.labels)
                    progress.step(f"mIoU {confusion.mean():.4f}")
        confusion.counts = np.sum(self._team.gather(confusion.counts), axis=0)
        iou = confusion.iou()
        return {
            "miou": confusion.mean(),
            "iou": {confusion.names[i]: float(iou[i]) for i in confusion.scored},
            "present": len(confusion.present()),
        }

    def _chosen(self, scans: int) -> list[int]:
        """This process's share of the scans that are scored."""
        most = self._config.data.val_scans or scans
        chosen = np.unique(np.linspace(0, scans - 1, min(most, scans)).round())
        return [int(index) for index in chosen[self._team.rank :: self._team.size]]

    def _labelled(self, scans: SemanticKITTI, chosen: list[int]) -> Iterator[Cloud]:
        for index in chosen:
            try:
                sample = scans[index]
                assert sample.labels is not None
                LABEL_MAPS[self._config.data.label_map].to_train(sample.labels)
            except (ValueError, OSError) as error:
                self._broken(" ".join(str(error).split()))
                continue
            yield Cloud(sample.points, sample.labels)

    def _simulated(self) -> Iterator[Cloud]:
        data = self._config.data
        if not self._streets:
            seeds = range(FIRST_HELD_OUT, FIRST_HELD_OUT + data.held_out)
            for seed in seeds[self._team.rank :: self._team.size]:
                self._streets.append(one_street(seed, data.beams, data.azimuths))
        yield from self._streets


def _quick(recipe: SegmentConfig) -> SegmentConfig:
    """The recipe with one pass a scan, where it has many."""
    if recipe.representative != "each":
        return recipe
    return replace(recipe, representative="first", thin=0.0, views=recipe.views[:1])


def balance(
    config: TrainConfig, model: torch.nn.Module, device: torch.device
) -> npt.NDArray[np.float32]:
    """Shift the class biases to where the mean IoU over streets of the training range is best.

    Class weights in the loss make rare classes too eager; one number a class sets that right.

    Args:
        config: Names the number of streets; its recipe averages log-probabilities of one pass.
        model: The bias of its logits is changed.
        device: Where it runs.

    Returns:
        The shifts.
    """
    segmenter = Segmenter(config.recipe, model, device)
    kinds, views = len(config.recipe.classes), len(config.recipe.views)
    table = np.full(2**16, -1, np.int64)
    table[list(config.recipe.classes)] = np.arange(kinds)
    parts, truth = [], []
    last = FIRST_TRAINING_SEED - 1 + 2**24
    with bar("class biases", config.balance) as progress:
        for seed in range(last - config.balance, last):
            street = one_street(seed, config.data.beams, config.data.azimuths)
            own = torch.from_numpy(table[street.labels & 0xFFFF])
            parts.append(segmenter.scores(street.points)[own >= 0])
            truth.append(own[own >= 0])
            progress.step("")
    scores, true = torch.cat(parts) / views, torch.cat(truth)

    def mean_iou(shift: torch.Tensor) -> float:
        flat = (scores + shift).argmax(1) * kinds + true
        counts = torch.bincount(flat, minlength=kinds * kinds).reshape(kinds, kinds).double()
        hits = counts.diagonal()
        return float((hits / (counts.sum(0) + counts.sum(1) - hits).clamp(min=1)).mean())

    shift = torch.zeros(kinds)
    best = mean_iou(shift)
    for size in (0.8, 0.4, 0.2, 0.1):
        for kind in range(kinds):
            for sign in (1, -1):
                tried = shift.clone()
                tried[kind] += sign * size
                if (value := mean_iou(tried)) > best:
                    best, shift = value, tried
    with torch.no_grad():
        model.get_parameter(NETWORKS[config.recipe.network].bias).add_(shift.to(device))
    return np.asarray(shift.numpy(), np.float32)
