"""`torchsparse.nn.utils.kernel`."""

from . import get_kernel_offsets

__all__ = ["get_kernel_offsets"]
