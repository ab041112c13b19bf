"""`spconv.cppconstants`."""

import torch

CPU_ONLY_BUILD = not torch.cuda.is_available()
HAS_BOOST = True  # rotated boxes need none
COMPILED_CUDA_ARCHS: list[tuple[int, int]] = []
COMPILED_CUDA_GEMM_ARCHS: list[tuple[int, int]] = []

__all__ = ["COMPILED_CUDA_ARCHS", "COMPILED_CUDA_GEMM_ARCHS", "CPU_ONLY_BUILD", "HAS_BOOST"]
