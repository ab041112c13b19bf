"""`torchsparse.utils` before version 1.4."""

from . import helpers, kernel, kernel_region
from .helpers import (
    make_list,
    make_tuple,
    ravel_hash_vec,
    sparse_collate,
    sparse_collate_fn,
    sparse_collate_tensors,
    sparse_quantize,
)
from .kernel_region import KernelRegion

__all__ = [
    "KernelRegion",
    "helpers",
    "kernel",
    "kernel_region",
    "make_list",
    "make_tuple",
    "ravel_hash_vec",
    "sparse_collate",
    "sparse_collate_fn",
    "sparse_collate_tensors",
    "sparse_quantize",
]
