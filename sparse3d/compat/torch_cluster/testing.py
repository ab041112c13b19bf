"""torch_cluster.testing: what the peer's own tests run over."""

from __future__ import annotations

from typing import Any

import torch

dtypes = [torch.half, torch.bfloat16, torch.float, torch.double, torch.int, torch.long]
grad_dtypes = [torch.half, torch.float, torch.double]
floating_dtypes = [*grad_dtypes, torch.bfloat16]
devices = [torch.device("cpu"), *([torch.device("cuda:0")] if torch.cuda.is_available() else [])]


def tensor(x: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """`x` as a tensor; None stays."""
    return None if x is None else torch.tensor(x, dtype=dtype, device=device)
