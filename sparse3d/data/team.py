"""The processes that torchrun started for one job, or this one alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist

from sparse3d._atomic import said

__all__ = ["INTERRUPTED", "Team", "run_as_team"]

T = TypeVar("T")

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

# One process may have the slow scans; nothing here waits for a network that is gone.
_PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class Team:
    """Who works on this job.

    Attributes:
        rank: This process, from 0 on.
        size: How many there are.
        local: This process among those of its machine.
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @classmethod
    def from_launcher(cls) -> Team:
        """As torchrun says; alone without it."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        rank, size, local = (int(os.environ.get(n, d)) for n, d in zip(names, "010", strict=True))
        return cls(rank, size, local)

    def device(self, chosen: torch.device) -> torch.device:
        """Each process of a machine takes its own GPU."""
        if chosen.type != "cuda" or self.size == 1:
            return chosen
        if self.local >= torch.cuda.device_count():
            raise ValueError(
                f"processes must be at most the {torch.cuda.device_count()} GPUs of this machine, "
                f"got number {self.local}; lower --nproc-per-node"
            )
        return torch.device("cuda", self.local)

    def __enter__(self) -> Team:
        if self.size > 1:
            kinds = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            if torch.cuda.is_available():
                torch.cuda.set_device(self.local % torch.cuda.device_count())
            dist.init_process_group(kinds, timeout=_PATIENCE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error the others may wait in a collective: torchrun ends them, not a handshake.
        if self.size > 1 and kind is None:
            dist.destroy_process_group()

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()

    def gather(self, value: T) -> list[T]:
        """Everyone's value, by rank."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return [v for v in values if v is not None]


def run_as_team(work: Callable[[Team], int], resumes: str) -> int:
    """A command's exit status: that of `work`, 2 after an error, `INTERRUPTED` after Ctrl-C.

    Args:
        work: The command, which may be interrupted and begun again.
        resumes: What the line on stderr says after Ctrl-C.
    """
    team = Team.from_launcher()
    try:
        with team:
            return work(team)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {said(error)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {resumes}\n")
        return INTERRUPTED
