"""Calls of the point kernels: signatures, tables of clouds, empty calls."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ._library import library

_P, _I32, _I64, _F64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_double

_SIGNATURES: dict[str, list[Any]] = {
    "s3d_index_build": [_P, _I32, _P, _I64, _I32, _I32, _P],
    "s3d_knn": [_I32, _P, _I64, _P, _I32, _P, _I64, _P, _I64, _I32, _I32, _I32, _P, _P],
    "s3d_ball": [_I32, _P, _I64, _P, _I32, _P, _I64, _P, _F64, _I64, _I32, _I32, _I32, _P, _P],
    "s3d_fps": [_I32, _P, _I32, _P, _I64, _I32, _I32, _I64, _I32, _I32, _P],
    "s3d_gather_columns": [_I32, _P, _P, _I64, _I64, _I64, _I64, _I32, _P],
    "s3d_interpolate_columns": [_I32, _P, _P, _P, _I64, _I64, _I64, _I64, _I32, _P],
    "s3d_graclus": [_P, _P, _P, _P, _I64, _P],
    "s3d_random_walk": [_P, _P, _P, _P, _I64, _I64, _F64, _F64, _I64, _I32, _P, _P],
}

for _name, _arguments in _SIGNATURES.items():
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = _arguments, _I32
library.s3d_index_bytes.argtypes, library.s3d_index_bytes.restype = [_P, _I64], _I64

METRICS = {"squared": 0, "euclidean": 1, "l1": 2}


def table(clouds: torch.Tensor) -> torch.Tensor:
    """The table of clouds as the library reads it."""
    return clouds.contiguous()


def given(index: torch.Tensor) -> int | None:
    """Address of the caller's index, or None where there is none."""
    return index.data_ptr() if index.numel() else None
