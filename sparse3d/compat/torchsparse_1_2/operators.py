"""Joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import _check
from ..torchsparse import operators

__all__ = ["cat"]


def cat(input_list: Sequence[Any], dim: int = 1) -> Any:
    """Join channels of tensors on the same rows.

    Args:
        input_list: tensors [N, C_i].
        dim: 1, the channels; the peer joins them whatever it says.

    Returns:
        A tensor [N, sum of C_i].

    Raises:
        ValueError: if `dim` is another one, or rows differ.
    """
    if dim != 1:
        _check.fail("dim", "1", dim)
    return operators.cat(list(input_list))
