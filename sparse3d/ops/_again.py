"""Values that a gradient makes again instead of keeping them until then.

Who makes such a value says what it was made from; who would save it for a gradient asks, and saves
that instead where the value is still what it was. Those tensors are kept by other gradients anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

LEAST_BYTES = 1 << 20  # smaller ones are not worth the time
_NAME = "_sparse3d_sources"

Saved = Sequence[torch.Tensor | None]


class Sources(NamedTuple):
    """What a value was made from, and how: `make(tensors)` is differentiable in grad mode. It must
    hold no tensor itself."""

    tensors: tuple[torch.Tensor | None, ...]
    make: Callable[[Saved], torch.Tensor]
    version: int
    place: int


def remember(
    value: torch.Tensor,
    tensors: tuple[torch.Tensor | None, ...],
    make: Callable[[Saved], torch.Tensor],
) -> None:
    """Say what `value` was made from."""
    if torch.compiler.is_compiling() or not value.requires_grad or value.nbytes < LEAST_BYTES:
        return
    setattr(value, _NAME, Sources(tensors, make, value._version, value.data_ptr()))


def sources(value: torch.Tensor) -> Sources | None:
    """What `value` was made from, if it was said and nobody changed it since."""
    found: Sources | None = getattr(value, _NAME, None)
    if found is None or (value._version, value.data_ptr()) != (found.version, found.place):
        return None
    return found
