"""Names of `spconv.pytorch.constants` that user code reads."""

from __future__ import annotations

import torch

__all__ = ["PYTORCH_VERSION"]

PYTORCH_VERSION = [int(part) for part in torch.__version__.split("+")[0].split(".")[:2]]
