"""Learning rates as a function of the step: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["SCHEDULES", "rate_factor"]

SCHEDULES = ("constant", "cosine", "one_cycle", "milestones")

_START = {"cosine": 0.05, "one_cycle": 1 / 25}


def rate_factor(
    schedule: str,
    step: int,
    steps: int,
    warmup: float = 0.05,
    final: float = 0.001,
    milestones: Sequence[float] = (),
) -> float:
    """Learning rate of a step over the largest one.

    Args:
        schedule: ``constant`` after a linear rise; ``cosine``: a linear rise from 0.05, then half a
            cosine down to ``final``; ``one_cycle``: half a cosine up from 1/25, then half a cosine
            down to ``final``, as `torch.optim.lr_scheduler.OneCycleLR` (with
            ``final_div_factor = 1 / (25 * final)``); ``milestones``: a linear rise, then a tenth
            from each milestone on.
        step: From 0 on.
        steps: Of the whole run.
        warmup: Share of the steps over which the rate rises.
        final: Last factor.
        milestones: Shares of the steps.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {list(SCHEDULES)}, got {schedule!r}")
    if schedule == "one_cycle":
        top = warmup * steps - 1
        if step <= top:
            return _arc(_START["one_cycle"], 1.0, step / top if top > 0 else 1.0)
        return _arc(1.0, final, (step - top) / (steps - 1 - top))
    progress = step / max(steps - 1, 1)
    if progress < warmup:
        low = _START.get(schedule, 0.0)
        return low + (1 - low) * progress / warmup
    if schedule == "cosine":
        return _arc(1.0, final, (progress - warmup) / (1 - warmup))
    return float(0.1 ** sum(step >= share * steps for share in milestones))


def _arc(start: float, end: float, part: float) -> float:
    """Half a cosine from start to end."""
    return end + (start - end) * (1 + math.cos(math.pi * min(part, 1.0))) / 2
