"""`spconv.debug_utils`."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from . import constants

__all__ = ["spconv_save_debug_data"]


def spconv_save_debug_data(data: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
    """Keep arrays of tensors as a pickle at `constants.SPCONV_DEBUG_SAVE_PATH`, if it is set."""
    if not constants.SPCONV_DEBUG_SAVE_PATH:
        return
    parts = data if isinstance(data, tuple) else (data,)
    arrays = tuple(part.detach().cpu().numpy() for part in parts)
    with Path(constants.SPCONV_DEBUG_SAVE_PATH).open("wb") as file:
        pickle.dump(arrays if isinstance(data, tuple) else arrays[0], file)
