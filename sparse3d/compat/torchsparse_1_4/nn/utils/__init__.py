"""`torchsparse.nn.utils`."""

from ....torchsparse.nn.utils import fapply, get_kernel_offsets

__all__ = ["fapply", "get_kernel_offsets"]
