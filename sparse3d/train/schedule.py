"""Learning rates as a function of the step: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["SCHEDULES", "momentum_at", "rate_factor"]

SCHEDULES = ("constant", "cosine", "one_cycle", "milestones")

_START = {"cosine": 0.05, "one_cycle": 1 / 25}


def rate_factor(
    schedule: str,
    step: int,
    steps: int,
    warmup: float = 0.05,
    final: float = 0.001,
    milestones: Sequence[float] = (),
    start: float | None = None,
) -> float:
    """Learning rate of a step over the largest one.

    Args:
        schedule: ``constant`` after a linear rise; ``cosine``: a linear rise, then half a cosine
            down to ``final``; ``one_cycle``: half a cosine up, then half a cosine down to
            ``final``, as `torch.optim.lr_scheduler.OneCycleLR` (with ``div_factor = 1 / start`` and
            ``final_div_factor = start / final``); ``milestones``: a linear rise, then a tenth from
            each milestone on.
        step: From 0 on.
        steps: Of the whole run.
        warmup: Share of the steps over which the rate rises.
        final: Last factor.
        milestones: Shares of the steps.
        start: First factor of the rise; 0.05 for ``cosine``, 1/25 for ``one_cycle`` and 0 for the
            others if not given.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {list(SCHEDULES)}, got {schedule!r}")
    low = _START.get(schedule, 0.0) if start is None else start
    if schedule == "one_cycle":
        return _cycle(step, steps, warmup, (low, 1.0, final))
    progress = step / max(steps - 1, 1)
    if progress < warmup:
        return low + (1 - low) * progress / warmup
    if schedule == "cosine":
        return _arc(1.0, final, (progress - warmup) / (1 - warmup))
    return float(0.1 ** sum(step >= share * steps for share in milestones))


def momentum_at(step: int, steps: int, warmup: float, low: float, high: float) -> float:
    """Momentum of a step of ``one_cycle``: from `high` to `low` as the rate rises, then back.

    Args:
        step: From 0 on.
        steps: Of the whole run.
        warmup: Share of the steps over which the rate rises.
        low: At the largest rate.
        high: At the ends.
    """
    return _cycle(step, steps, warmup, (high, low, high))


def _cycle(step: int, steps: int, warmup: float, ends: tuple[float, float, float]) -> float:
    """Half a cosine from the first to the second over the warm-up, then one to the third."""
    top = warmup * steps - 1
    if step <= top:
        return _arc(ends[0], ends[1], step / top if top > 0 else 1.0)
    return _arc(ends[1], ends[2], (step - top) / (steps - 1 - top))


def _arc(start: float, end: float, part: float) -> float:
    """Half a cosine from start to end."""
    return end + (start - end) * (1 + math.cos(math.pi * min(part, 1.0))) / 2
