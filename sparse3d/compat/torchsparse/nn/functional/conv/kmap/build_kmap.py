"""`torchsparse.nn.functional.conv.kmap.build_kmap`."""

from ..conv import build_kernel_map, transpose_kernel_map

__all__ = ["build_kernel_map", "transpose_kernel_map"]
