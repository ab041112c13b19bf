"""`torchsparse.utils.kernel_region`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torchsparse.nn.utils.kernel import get_kernel_offsets
from ...torchsparse.utils.utils import make_ntuple

__all__ = ["KernelRegion"]


class KernelRegion:
    """Offsets of a kernel: the first axis fastest where the number of taps is odd, else the last.

    Args:
        kernel_size: one integer, or one an axis.
        tensor_stride: likewise; offsets are its multiples.
        dilation: likewise.
        dim: axes that the kernel extends along; None for all.
    """

    def __init__(
        self,
        kernel_size: Any = 3,
        tensor_stride: Any = 1,
        dilation: Any = 1,
        dim: Sequence[int] | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        self.tensor_stride = list(make_ntuple(tensor_stride, ndim=3))
        self.dilation = list(make_ntuple(dilation, ndim=3))
        sizes = make_ntuple(kernel_size, ndim=3)
        flat = tuple(k if dim is None or axis in dim else 1 for axis, k in enumerate(sizes))
        self.kernel_offset = get_kernel_offsets(flat, self.tensor_stride, self.dilation)

    def get_kernel_offset(self) -> torch.Tensor:
        """int32 [K, 3]."""
        return self.kernel_offset
