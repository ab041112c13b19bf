"""`spconv.cppconstants`."""

import torch

CPU_ONLY_BUILD = not torch.cuda.is_available()
COMPILED_CUDA_ARCHS: list[tuple[int, int]] = []

__all__ = ["COMPILED_CUDA_ARCHS", "CPU_ONLY_BUILD"]
