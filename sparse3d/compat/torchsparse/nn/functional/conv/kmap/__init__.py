"""`torchsparse.nn.functional.conv.kmap`."""

from ..conv import build_kernel_map, spdownsample, spupsample_generative, transpose_kernel_map

__all__ = ["build_kernel_map", "spdownsample", "spupsample_generative", "transpose_kernel_map"]
