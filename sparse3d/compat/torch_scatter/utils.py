"""torch_scatter.utils."""

from __future__ import annotations

import torch

from ...pointops.scatter import broadcast_index


def broadcast(src: torch.Tensor, other: torch.Tensor, dim: int) -> torch.Tensor:
    """`src` with axes added until it has the shape of `other`."""
    return broadcast_index(src, other, dim)


def into(out: torch.Tensor | None, value: torch.Tensor) -> torch.Tensor:
    """`value`, written into `out` where given."""
    return value if out is None else out.copy_(value)


def positions(
    out: torch.Tensor | None, found: tuple[torch.Tensor, torch.Tensor], rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A maximum or minimum and its positions, `rows` where there is none."""
    return into(out, found[0]), torch.where(found[1] < 0, rows, found[1])
