"""The training loop. Its state after a step depends on the config and the step alone."""

from __future__ import annotations

import copy
import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from sparse3d.data.batch import Batch, collate
from sparse3d.data.benchmark import leave_signals
from sparse3d.data.progress import bar
from sparse3d.data.segment import build, load_into
from sparse3d.data.team import Team
from sparse3d.train.class_weights import class_weights
from sparse3d.train.config import RateConfig, TrainConfig
from sparse3d.train.judge import Judge, balance
from sparse3d.train.logs import Log
from sparse3d.train.losses import segmentation_loss, weight_of
from sparse3d.train.schedule import momentum_at, rate_factor
from sparse3d.train.state import State, load_state, save_state, save_weights
from sparse3d.train.streams import Items, Steps, Stream, open_stream
from sparse3d.train.sync_norm import synchronise

__all__ = ["Outcome", "Trainer"]

_RISE = 10  # steps over which the running average of the weights forgets where it began


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: Steps done.
        steps: Steps of the whole run.
        score: Of the final weights: ``miou``, ``iou``, ``present``; empty when interrupted.
        best: Best mean IoU of all evaluations, and its step.
        broken: Scans that could not be read, with the reason.
    """

    step: int
    steps: int
    score: dict[str, Any]
    best: tuple[float, int]
    broken: dict[str, str]


class Trainer:
    """A training run in a folder; the same call again goes on where it was interrupted.

    Args:
        config: What is trained.
        out: Folder of checkpoints and logs.
        device: Where it runs.
        team: The processes that share it.
        fresh: Begin anew, whatever the folder holds.
        start: File of weights to begin with.
        strict: Stop at the first broken scan.
        say: Takes one-line remarks.

    Raises:
        ValueError: Folders, weights or the checkpoint in ``out`` do not fit; one line.
    """

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        device: torch.device,
        team: Team | None = None,
        *,
        fresh: bool = False,
        start: Path | None = None,
        strict: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.config, self.out, self.device = config, out, device
        self.team = team if team is not None else Team()
        self._strict, self._say = strict, say
        self.broken: dict[str, str] = {}
        self.stream: Stream = open_stream(config, out)
        self._judge = Judge(config, self.team, self._note)
        self.steps = config.steps or max(
            1, config.epochs * len(self.stream) // (config.batch * self.team.size)
        )
        torch.manual_seed(config.seed)
        model = build(config.recipe)
        if start is not None:
            load_into(model, config.recipe, start)
        self.model = model.to(device)
        if self.team.size > 1 and config.sync_norm:
            synchronise(self.model)
        self.slow = copy.deepcopy(self.model) if config.average else self.model
        self.optimizer = _optimizer(config, self.model)
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.amp == "float16")
        self.class_weights: torch.Tensor | None = None
        self.step, self.best = 0, (-1.0, 0)
        self._losses: tuple[float | torch.Tensor, int] = (0.0, 0)
        self._stopped, self._shown = False, ""
        last = out / "last.pt"
        if last.exists() and not fresh:
            self._restore(last)
        else:
            weights = class_weights(config, self.stream, self.team, self._note)
            self.class_weights = None if weights is None else weights.to(device)

    def run(self) -> Outcome:
        """Train to the end, or to an interruption (Ctrl-C or SIGTERM), which is saved."""
        log = None
        if self.team.rank == 0:
            ended = self.step == self.steps
            log = Log(self.out, self.step, self.config.tensorboard, unscored=ended)
        wrapped: nn.Module = self.model
        if self.team.size > 1:
            wrapped = DistributedDataParallel(self.model, broadcast_buffers=False)
        hidden = self.team.rank > 0
        name, done = self.config.name, self.step
        with (
            self._interruptible(),
            bar(name, self.steps, done=done, hidden=hidden) as progress,
        ):
            for batch in self._batches():
                self._update(wrapped, batch)
                self.step += 1
                progress.step(self._report(log))
                if self._stopped or self.step % self.config.checkpoint_every == 0:
                    self.save()
                if self._stopped:
                    break
        score = self._end(log) if self.step == self.steps else {}
        if log is not None:
            log.close()
        return Outcome(self.step, self.steps, score, self.best, self.broken)

    def save(self) -> None:
        """Write ``last.pt``."""
        broken = self.team.gather(self.broken)
        if self.team.rank > 0:
            return
        state = State(
            key=self._key(),
            step=self.step,
            model=self.slow.state_dict(),
            fast=self.model.state_dict() if self.slow is not self.model else {},
            optimizer=self.optimizer.state_dict(),
            scaler=self.scaler.state_dict(),
            class_weights=self.class_weights,
            losses=(float(self._losses[0]), self._losses[1]),
            best=self.best,
            broken={name: why for table in broken for name, why in table.items()},
        )
        save_state(self.out / "last.pt", state)

    def _key(self) -> dict[str, Any]:
        return self.config.key() | {"processes": self.team.size}

    def _restore(self, path: Path) -> None:
        state = load_state(path)
        if difference := _difference(state.key, self._key()):
            raise ValueError(
                f"{path}: must be of the same config, got another {difference}; name another "
                "--out, or begin anew with --fresh"
            )
        self.step, self._losses, self.best = state.step, state.losses, state.best
        self.broken = dict(state.broken)
        self.slow.load_state_dict(state.model)
        if state.fast:
            self.model.load_state_dict(state.fast)
        self.optimizer.load_state_dict(state.optimizer)
        self.scaler.load_state_dict(state.scaler)
        if state.class_weights is not None:
            self.class_weights = state.class_weights.to(self.device)
        self._say(f"going on from step {self.step} of {self.steps} in {path}")

    def _batches(self) -> Iterator[Batch]:
        config = self.config
        steps = Steps(self.step, self.steps, config.batch, self.team.rank, self.team.size)
        loader: Any = DataLoader(
            Items(self.stream, config),
            batch_sampler=steps,
            collate_fn=collate,
            num_workers=config.workers,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=2 if config.workers else None,
            worker_init_fn=leave_signals,
        )
        for batch in itertools.islice(loader, len(steps)):
            for note in batch.notes:
                self._note(note)
            yield batch

    def _note(self, reason: str) -> None:
        """Name a broken scan once; its file begins the reason."""
        if self._strict:
            raise ValueError(f"{reason}; stopped by --strict")
        name = reason.split(": ", 1)[0]
        if name not in self.broken:
            self.broken[name] = reason
            self._say(f"error: {reason}")

    def _update(self, wrapped: nn.Module, batch: Batch) -> None:
        """One step of the weights."""
        config = self.config
        # Whatever a layer may draw then depends on the step, not on what was drawn before.
        torch.manual_seed(config.seed * 1_000_003 + self.step * self.team.size + self.team.rank)
        set_rates(self.optimizer, config.rates, self.step, self.steps)
        target = batch.targets.to(self.device, non_blocking=True)
        half = getattr(torch, config.amp) if config.amp != "none" else torch.bfloat16
        wrapped.train()
        with torch.autocast(self.device.type, half, enabled=config.amp != "none"):
            scores = wrapped(batch.tensor(self.device))
        loss = segmentation_loss(
            scores,
            target,
            weight=self.class_weights,
            smoothing=config.loss.smoothing,
            lovasz=config.loss.lovasz,
            total=self._share(target),
        )
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(self.scaler.scale(loss))
        if config.gradient_clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), config.gradient_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.slow is not self.model:
            keep = min(config.average, (self.step + 1) / (self.step + 1 + _RISE))
            _approach(self.slow, self.model, keep)
        self._losses = (self._losses[0] + loss.detach(), self._losses[1] + 1)

    def _share(self, target: torch.Tensor) -> torch.Tensor | None:
        """The mean over processes of what each divides its cross entropy by."""
        if self.team.size == 1:
            return None
        total = weight_of(target, self.class_weights)
        dist.all_reduce(total)
        return total / self.team.size

    def _report(self, log: Log | None) -> str:
        """Log what is due; the note beside the bar."""
        config, step = self.config, self.step
        if step % config.log_every == 0 or step == self.steps:
            total, count = float(self._losses[0]), self._losses[1]
            mean = sum(self.team.gather(total)) / self.team.size / max(count, 1)
            if not np.isfinite(mean):
                raise ValueError(
                    f"loss must stay finite, got {mean} by step {step}; lower optimizer.rate"
                )
            self._losses = (0.0, 0)
            self._shown = f"loss {mean:.3f}"
            if log is not None:
                log.write(step, loss=mean, rate=self.optimizer.param_groups[0]["lr"])
        due = config.evaluate_every and step % config.evaluate_every == 0
        if due and step < self.steps:
            self._evaluate(log)
        best = f", best mIoU {self.best[0]:.4f}" if self.best[1] else ""
        return self._shown + best

    def _evaluate(self, log: Log | None, show: bool = False) -> dict[str, Any]:
        score = self._judge.score(self.slow, self.device, show)
        if log is not None:
            log.write(self.step, miou=score["miou"], iou=score["iou"])
        if score["miou"] > self.best[0]:
            self.best = (score["miou"], self.step)
            self._save_weights("best.pt", score["miou"])
        return score

    def _end(self, log: Log | None) -> dict[str, Any]:
        """Score, balance and write the final weights."""
        self.save()
        if self.config.balance and self.config.data.kind == "streets" and self.team.rank == 0:
            shift = balance(self.config, self.slow, self.device)
            self._say(f"class biases shifted by {[round(float(s), 2) for s in shift]}")
        if self.team.size > 1:
            for tensor in self.slow.state_dict().values():
                dist.broadcast(tensor, 0)
        score = self._evaluate(log, show=True)
        self._save_weights("model.pt", score["miou"])
        return score

    def _save_weights(self, name: str, miou: float) -> None:
        if self.team.rank == 0:
            save_weights(
                self.out / name,
                self.slow.state_dict(),
                config=self.config.name,
                step=self.step,
                miou=miou,
            )

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the step, once; alone only, since processes that
        share steps would stop at different ones.
        """
        if self.team.size > 1:
            yield
            return

        def stop(number: int, frame: object) -> None:
            self._stopped = True
            signal.signal(number, signal.default_int_handler)

        kinds = (signal.SIGINT, signal.SIGTERM)
        try:
            before = [signal.signal(kind, stop) for kind in kinds]
        except ValueError:  # not the main thread
            yield
            return
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)


def _optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    rates = config.rates
    if rates.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), rates.rate, weight_decay=rates.weight_decay)
    return torch.optim.SGD(
        model.parameters(),
        rates.rate,
        momentum=rates.momentum,
        weight_decay=rates.weight_decay,
        nesterov=rates.nesterov and rates.momentum > 0,
    )


def set_rates(optimizer: torch.optim.Optimizer, rates: RateConfig, step: int, steps: int) -> None:
    """Learning rate of a step, and the momentum where that changes too."""
    factor = rate_factor(
        rates.schedule, step, steps, rates.warmup, rates.final, rates.milestones, rates.start
    )
    for group in optimizer.param_groups:
        group["lr"] = rates.rate * factor
        if not rates.momenta:
            continue
        momentum = momentum_at(step, steps, rates.warmup, *rates.momenta)
        if "betas" in group:
            group["betas"] = (momentum, group["betas"][1])
        else:
            group["momentum"] = momentum


def _approach(slow: nn.Module, fast: nn.Module, keep: float) -> None:
    """Move the averaged weights and statistics towards the present ones."""
    old, new = slow.state_dict().values(), fast.state_dict().values()
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a.is_floating_point()]
    with torch.no_grad():
        torch._foreach_lerp_([a for a, _ in pairs], [b for _, b in pairs], 1 - keep)


def _difference(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """The first entry that differs, as ``loss.lovasz (0.7, now 0.5)``."""
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := _difference(old, new, f"{prefix}{name}."):
                return inner
        elif old != new:
            return f"{prefix}{name} ({old}, now {new})"
    return ""
