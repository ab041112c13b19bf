"""Names of `spconv.pytorch.constants` and `spconv.constants` that user code reads."""

from __future__ import annotations

import torch

__all__ = [
    "ALL_WEIGHT_IS_KRSC",
    "FILTER_HWIO",
    "PYTORCH_VERSION",
    "SAVED_WEIGHT_LAYOUT",
    "SPCONV_ALLOW_TF32",
    "TORCH_HAS_AMP",
    "is_amp_enabled",
]

PYTORCH_VERSION = [
    int(part) for part in torch.__version__.split("+")[0].split(".")[:3] if part.isdigit()
]
TORCH_HAS_AMP = True
ALL_WEIGHT_IS_KRSC = True
FILTER_HWIO = False
SAVED_WEIGHT_LAYOUT = ""
SPCONV_ALLOW_TF32 = False
"""Settable for spconv's code; sparse3d follows `torch.backends.cuda.matmul.allow_tf32`."""


def is_amp_enabled() -> bool:
    """Whether torch's autocast is on."""
    return torch.is_autocast_enabled()
