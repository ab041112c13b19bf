"""`torchsparse.utils.kernel`."""

from .kernel_region import KernelRegion

__all__ = ["KernelRegion"]
