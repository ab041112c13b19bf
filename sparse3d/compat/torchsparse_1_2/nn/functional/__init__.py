"""`torchsparse.nn.functional` before version 1.4."""

from __future__ import annotations

from typing import Any

import torch

from ..... import _check
from .....ops.coordinates import cells_of, unique
from ....torchsparse.nn.functional.conv import conv3d as _conv3d
from ....torchsparse.utils.utils import make_ntuple
from ....torchsparse_1_4.nn.functional import (
    calc_ti_weights,
    global_avg_pool,
    global_max_pool,
    leaky_relu,
    relu,
    spcount,
    spcrop,
    spdevoxelize,
    sphash,
    sphashquery,
    spvoxelize,
)
from ...sparse_tensor import SparseTensor

__all__ = [
    "calc_ti_weights",
    "conv3d",
    "global_avg_pool",
    "global_max_pool",
    "leaky_relu",
    "relu",
    "spcount",
    "spcrop",
    "spdevoxelize",
    "spdownsample",
    "sphash",
    "sphashquery",
    "spvoxelize",
]


def conv3d(
    inputs: SparseTensor,
    kernel: torch.Tensor,
    kernel_size: Any = None,
    bias: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    transpose: bool = False,
) -> Any:
    """Convolve.

    Args:
        inputs: N rows, C_in channels.
        kernel: [K, C_in, C_out], or [C_in, C_out] for one tap.
        kernel_size: one integer, or one an axis; 1.0 has none, and its bias stands here: a cube.
        bias: [C_out] or None.
        stride: one integer, or one an axis.
        dilation: likewise.
        transpose: undo the strided layer of the same numbers.

    Raises:
        ValueError: if no size is given and the taps make no cube.
    """
    if kernel_size is None or isinstance(kernel_size, torch.Tensor):
        bias = kernel_size if bias is None else bias
        taps = 1 if kernel.ndim == 2 else len(kernel)
        sizes = [size for size in range(1, taps + 1) if size**3 == taps]
        if not sizes:
            _check.fail("kernel_size", "given where the taps make no cube", f"{taps} taps")
        kernel_size = sizes[0]
    return _conv3d(
        inputs, kernel, kernel_size, bias, stride, dilation=dilation, transposed=transpose
    )


def spdownsample(coords: torch.Tensor, ratio: Any) -> torch.Tensor:
    """Distinct `floor(c / ratio) * ratio` of (x, y, z, batch)."""
    steps = make_ntuple(ratio, ndim=3)
    cells = cells_of(coords[:, [3, 0, 1, 2]].contiguous(), steps)
    return SparseTensor.from_indices(cells[unique(cells)[0]], steps)
