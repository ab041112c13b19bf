"""`flex_gemm.ops.serialize`: sites as numbers along a curve, the batch id in the highest bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .... import _check
from ....pointops.curves import site_codes, sites_of_codes

__all__ = ["decode_seq", "encode_seq"]

CODES = ("z_order", "hilbert")


def encode_seq(coords: torch.Tensor, shape: Sequence[int], mode: str = "z_order") -> torch.Tensor:
    """Codes of sites (batch, x, y, z) int32 [N, 4] in a grid (N, C, W, H, D).

    Args:
        coords: the sites.
        shape: of the grid; its longest axis says how many bits an axis takes.
        mode: "z_order" or "hilbert".

    Returns:
        int32 [N] if all bits fit, else int64.

    Raises:
        ValueError: if the bits pass 64, or a site lies outside.
    """
    _check.coordinates("coords", coords)
    bits = _bits(shape, mode)
    total = int(shape[0]).bit_length() + 3 * bits
    if total > 64:
        _check.fail("shape", "of 64 bits at most", f"{tuple(shape)} ({total} bits)")
    codes = site_codes(coords, bits, mode)
    return codes.int() if total <= 32 else codes


def decode_seq(code: torch.Tensor, shape: Sequence[int], mode: str = "z_order") -> torch.Tensor:
    """Sites int32 [N, 4] of codes [N]; arguments as of `encode_seq`."""
    return sites_of_codes(code, _bits(shape, mode), mode)


def _bits(shape: Sequence[int], mode: str) -> int:
    if mode not in CODES:
        _check.fail("mode", f"one of {CODES}", repr(mode))
    if len(shape) != 5:
        _check.fail("shape", "(N, C, W, H, D)", tuple(shape))
    return max(int(size) for size in shape[2:]).bit_length()
