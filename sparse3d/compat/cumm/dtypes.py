"""`cumm.dtypes`: numpy's, as of `cumm.tensorview`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .tensorview import (
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

__all__ = [
    "DType",
    "float16",
    "float32",
    "float64",
    "get_npdtype_from_tvdtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

DType = np.dtype


def get_npdtype_from_tvdtype(tv_dtype: Any) -> np.dtype[Any]:
    """The numpy type of a tensorview's."""
    made: np.dtype[Any] = np.dtype(tv_dtype)
    return made
