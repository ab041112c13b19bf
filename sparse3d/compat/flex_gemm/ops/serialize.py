"""`flex_gemm.ops.serialize`: refused. Its codes' bit order is the compiled extension's own."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["decode_seq", "encode_seq"]


def encode_seq(coords: Any = None, shape: Any = None, mode: str = "z_order") -> NoReturn:
    """Not here.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "encode_seq must be left out with sparse3d, got a call; sort coordinates by sparse3d's own"
    )


def decode_seq(code: Any = None, shape: Any = None, mode: str = "z_order") -> NoReturn:
    """Not here.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("decode_seq must be left out with sparse3d, got a call")
