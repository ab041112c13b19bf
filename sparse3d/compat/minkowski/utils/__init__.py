"""`MinkowskiEngine.utils`."""

from .collation import SparseCollation, batch_sparse_collate, batched_coordinates, sparse_collate
from .coords import get_coords_map
from .gradcheck import gradcheck
from .init import kaiming_normal_
from .quantization import (
    fnv_hash_vec,
    quantize,
    quantize_label,
    ravel_hash_vec,
    sparse_quantize,
    unique_coordinate_map,
)
from .summary import summary

__all__ = [
    "SparseCollation",
    "batch_sparse_collate",
    "batched_coordinates",
    "fnv_hash_vec",
    "get_coords_map",
    "gradcheck",
    "kaiming_normal_",
    "quantize",
    "quantize_label",
    "ravel_hash_vec",
    "sparse_collate",
    "sparse_quantize",
    "summary",
    "unique_coordinate_map",
]
