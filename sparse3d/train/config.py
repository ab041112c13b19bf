"""What `sparse3d train` is told: one YAML file, every entry of it checked."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparse3d.data.augment import Augment
from sparse3d.data.augment.recipe import KEYS as AUGMENT_KEYS
from sparse3d.data.config import SegmentConfig, config_path, load_config, parse_config
from sparse3d.data.semantic_kitti import LABEL_MAPS
from sparse3d.data.tables import Table, load_yaml
from sparse3d.train.schedule import SCHEDULES

__all__ = ["DataConfig", "LossConfig", "RateConfig", "TrainConfig", "load_train_config"]

_KEYS = (
    "name", "recipe", "data", "augment", "loss", "optimizer", "schedule", "epochs", "steps",
    "batch", "workers", "max_voxels", "amp", "gradient_clip", "average", "balance", "sync_norm",
    "seed", "evaluate_every", "checkpoint_every", "log_every", "tensorboard",
)  # fmt: skip
_DATA = ("kind", "root", "train", "val", "val_scans", "label_map", "streets", "fresh", "held_out",
         "beams", "azimuths")  # fmt: skip
AMP = ("none", "float16", "bfloat16")


@dataclass(frozen=True)
class DataConfig:
    """Where clouds come from.

    Attributes:
        kind: ``kitti`` or ``streets`` (simulated).
        root: SemanticKITTI's folder.
        train: Sequences to train on.
        val: Sequences to score on.
        val_scans: Score on at most so many scans, evenly spread; 0 means all.
        label_map: ``official`` or ``spvnas``.
        streets: Number of different streets.
        fresh: Share of clouds that are new streets, until all are there.
        held_out: Number of streets to score on; they are never trained on.
        beams: Beams of the simulated lidar; 0 means a random lidar for each street.
        azimuths: Its firings per turn.
    """

    kind: str
    root: str = ""
    train: tuple[int, ...] = ()
    val: tuple[int, ...] = ()
    val_scans: int = 0
    label_map: str = "official"
    streets: int = 0
    fresh: float = 0.25
    held_out: int = 24
    beams: int = 0
    azimuths: int = 0


@dataclass(frozen=True)
class LossConfig:
    """What is minimised.

    Attributes:
        smoothing: Label smoothing of the cross entropy.
        lovasz: Weight of the Lovasz softmax beside it.
        power: Class weights are inverse shares of points to this power, with mean 1 and within
            0.3 to 3; 0 means no weights.
        weights: Class weights by output channel, instead.
    """

    smoothing: float = 0.0
    lovasz: float = 0.0
    power: float = 0.0
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class RateConfig:
    """How weights move.

    Attributes:
        optimizer: ``sgd`` or ``adamw``.
        rate: Largest learning rate.
        weight_decay: As torch's optimizers have it.
        momentum: Of SGD.
        nesterov: Of SGD.
        schedule: ``constant``, ``cosine``, ``one_cycle`` or ``milestones``.
        warmup: Share of the steps over which the rate rises.
        start: First rate of the rise over the largest; None for the schedule's own.
        final: Last rate over the largest.
        momenta: Of ``one_cycle``: momentum (of AdamW: the first beta) at the largest rate and at
            the ends; nothing leaves it as it is.
        milestones: Shares of the steps from which on the rate is a tenth.
    """

    optimizer: str = "adamw"
    rate: float = 2e-3
    weight_decay: float = 0.01
    momentum: float = 0.9
    nesterov: bool = True
    schedule: str = "cosine"
    warmup: float = 0.05
    final: float = 0.001
    milestones: tuple[float, ...] = ()
    start: float | None = None
    momenta: tuple[float, ...] = ()


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
        name: Short name.
        recipe: The network and what it is fed.
        data: Where clouds come from.
        augment: How they are moved and mixed.
        loss: What is minimised.
        rates: How weights move.
        epochs: Passes over the data, or 0 where ``steps`` is given.
        steps: Updates of the weights, or 0 where ``epochs`` is given.
        batch: Clouds of one process in a step.
        workers: Processes that prepare clouds.
        max_voxels: Largest number of voxels of a cloud, or 0.
        amp: ``none``, ``float16`` (with loss scaling) or ``bfloat16``.
        gradient_clip: Largest norm of all gradients together, or 0.
        average: How much of the running average of the weights stays at each step, or 0.
        balance: Streets by which the class biases are set at the end, or 0.
        sync_norm: Batch norm over the clouds of all processes.
        seed: Of everything random.
        evaluate_every: Steps between scores; 0 means at the end only.
        checkpoint_every: Steps between checkpoints.
        log_every: Steps between lines of the log.
        tensorboard: Write event files for TensorBoard too.
    """

    name: str
    recipe: SegmentConfig
    data: DataConfig
    augment: Augment
    loss: LossConfig
    rates: RateConfig
    epochs: int
    steps: int
    batch: int = 8
    workers: int = 0
    max_voxels: int = 0
    amp: str = "none"
    gradient_clip: float = 0.0
    average: float = 0.0
    balance: int = 0
    sync_norm: bool = True
    seed: int = 0
    evaluate_every: int = 0
    checkpoint_every: int = 500
    log_every: int = 10
    tensorboard: bool = False

    def key(self) -> dict[str, Any]:
        """All that changes the result, as JSON has it; what only changes the speed is left out."""
        table = asdict(self)
        for name in ("name", "workers", "checkpoint_every", "log_every", "tensorboard"):
            table.pop(name)
        for name in ("name", "about", "weights"):
            table["recipe"].pop(name)
        return dict(json.loads(json.dumps(table)))

    def fingerprint(self) -> str:
        """A short name of `key`."""
        return hashlib.sha256(json.dumps(self.key(), sort_keys=True).encode()).hexdigest()[:16]


def load_train_config(source: str | os.PathLike[str]) -> TrainConfig:
    """Read a training config.

    Args:
        source: A YAML file, or the name of one in ``sparse3d/configs`` without its ending.

    Raises:
        ValueError: It is missing, no YAML, or has wrong, missing or unknown entries; one line.
    """
    path = config_path(source)
    entries = load_yaml(path)
    table = Table(entries, _KEYS, path)
    recipe = _recipe(table, path)
    steps, epochs = table.whole("steps", 0, 0), table.whole("epochs", 0, 0)
    if (steps > 0) == (epochs > 0):
        raise ValueError(f"{path}: one of steps and epochs must be given, got {steps} and {epochs}")
    data = _data(table)
    balance = table.whole("balance", 0, 0, 1000)
    if balance and data.kind == "kitti":
        raise table.fail("balance", "left out for data.kind kitti")
    if balance and (recipe.representative == "each" or recipe.average == "probability"):
        raise table.fail("balance", "left out where not log-probabilities of one pass are averaged")
    batch = table.whole("batch", 8, 1)
    augment = Augment.parse(table.table("augment", AUGMENT_KEYS))
    if augment.mix3d and batch == 1:
        raise table.fail("batch", "2 at least for augment.mix3d")
    return TrainConfig(
        name=table.text("name", path.stem),
        recipe=recipe,
        data=data,
        augment=augment,
        loss=_loss(table, len(recipe.classes)),
        rates=_rates(table),
        epochs=epochs,
        steps=steps,
        batch=batch,
        workers=table.whole("workers", 0, 0, 256),
        max_voxels=table.whole("max_voxels", 0, 0),
        amp=table.choice("amp", "none", AMP),
        gradient_clip=table.number("gradient_clip", 0.0, 0, 1e6),
        average=table.number("average", 0.0, 0, 0.99999),
        balance=balance,
        sync_norm=table.flag("sync_norm", True),
        seed=table.whole("seed", 0, 0),
        evaluate_every=table.whole("evaluate_every", 0, 0),
        checkpoint_every=table.whole("checkpoint_every", 500, 1),
        log_every=table.whole("log_every", 10, 1),
        tensorboard=table.flag("tensorboard", False),
    )


def _recipe(table: Table, path: Path) -> SegmentConfig:
    """By name, by file beside this one, or written out."""
    value = table.entries.get("recipe")
    if isinstance(value, dict):
        return parse_config(value, path)
    name = table.text("recipe", None)
    beside = path.parent / name
    return load_config(beside if beside.suffix and beside.exists() else name)


def _data(table: Table) -> DataConfig:
    part = table.table("data", _DATA)
    kind = part.choice("kind", None, ("kitti", "streets"))
    only = {"kitti": _DATA[1:6], "streets": _DATA[6:]}
    for other, keys in only.items():
        if other != kind:
            part.refuse(keys, f"for kind {kind}")
    if kind == "streets":
        beams = part.whole("beams", 0, 0, 256)
        if not beams:
            part.refuse(("azimuths",), "without beams")
        return DataConfig(
            kind,
            streets=part.whole("streets", None, 1),
            fresh=part.number("fresh", 0.25, 0.001, 1),
            held_out=part.whole("held_out", 24, 1, 1000),
            beams=beams,
            azimuths=part.whole("azimuths", 2083, 1, 10000) if beams else 0,
        )
    whole = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10)
    return DataConfig(
        kind,
        root=part.text("root", None),
        train=_sequences(part, "train", whole),
        val=_sequences(part, "val", (8,)),
        val_scans=part.whole("val_scans", 0, 0),
        label_map=part.choice("label_map", "official", list(LABEL_MAPS)),
    )


def _sequences(part: Table, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = part.entries.get(key, list(default))
    good = isinstance(value, list) and value and all(type(v) is int for v in value)
    if not good:
        raise part.fail(key, "a list of sequence numbers")
    return tuple(value)


def _loss(table: Table, channels: int) -> LossConfig:
    part = table.table("loss", ("smoothing", "lovasz", "power", "weights"))
    weights = part.numbers("weights", (), 0, 1e6)
    if weights and len(weights) != channels:
        raise part.fail("weights", f"{channels} numbers, one for each output channel")
    power = part.number("power", 0.0, 0, 2)
    if weights and not any(weights):
        raise part.fail("weights", "above 0 for one channel at least")
    if weights and power:
        raise part.fail("power", "left out beside weights")
    return LossConfig(
        smoothing=part.number("smoothing", 0.0, 0, 0.99),
        lovasz=part.number("lovasz", 0.0, 0, 1e3),
        power=power,
        weights=weights,
    )


def _rates(table: Table) -> RateConfig:
    part = table.table("optimizer", ("kind", "rate", "weight_decay", "momentum", "nesterov"))
    plan = table.table("schedule", ("kind", "warmup", "start", "final", "milestones", "momentum"))
    kind = part.choice("kind", "adamw", ("sgd", "adamw"))
    if kind == "adamw":
        part.refuse(("momentum", "nesterov"), "for kind adamw")
    momentum = part.number("momentum", 0.9, 0, 0.9999)
    nesterov = part.flag("nesterov", True)
    if nesterov and not momentum and "nesterov" in part.entries:
        raise part.fail("nesterov", "false for momentum 0")
    schedule = plan.choice("kind", "cosine", SCHEDULES)
    if schedule in ("constant", "milestones"):
        plan.refuse(("final",), f"for kind {schedule}")
    if schedule != "one_cycle":
        plan.refuse(("momentum",), f"for kind {schedule}")
    elif "momentum" in plan.entries:
        part.refuse(("momentum",), "beside schedule.momentum")
    if schedule != "milestones":
        plan.refuse(("milestones",), f"for kind {schedule}")
    cycled = "momentum" in plan.entries
    milestones = plan.numbers("milestones", (), 0, 1)
    if schedule == "milestones" and not milestones:
        raise plan.fail("milestones", "at least one share of the steps for kind milestones")
    return RateConfig(
        optimizer=kind,
        rate=part.number("rate", 2e-3, 0, 1e3),
        weight_decay=part.number("weight_decay", 0.01 if kind == "adamw" else 1e-4, 0, 10),
        momentum=momentum,
        nesterov=nesterov,
        schedule=schedule,
        warmup=plan.number("warmup", 0.05, 0, 0.99),
        final=plan.number("final", 0.001, 0, 1),
        milestones=milestones,
        start=plan.number("start", 0.0, 0, 1) if "start" in plan.entries else None,
        momenta=plan.numbers("momentum", (0.85, 0.95), 0, 0.9999) if cycled else (),
    )
