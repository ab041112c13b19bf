"""Numbers of cells along space-filling curves: Z-order (Morton) and Hilbert.

Cells near each other in space get numbers near each other; along the Hilbert curve, following
numbers are neighbouring cells. The Hilbert curve is that of Skilling, "Programming the Hilbert
curve", 2004. Bit 3n + 2 of a code is of axis 0, 3n + 1 of axis 1, 3n of axis 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import _check

__all__ = [
    "hilbert_cells",
    "hilbert_codes",
    "site_codes",
    "sites_of_codes",
    "z_order_cells",
    "z_order_codes",
]

MOST_BITS = 21
Axes = list[torch.Tensor]
Curve = Callable[[torch.Tensor, int], torch.Tensor]


def z_order_codes(cells: torch.Tensor, bits: int) -> torch.Tensor:
    """Cells int [N, 3] in [0, 2^bits) to codes int64 [N] in [0, 8^bits).

    Raises:
        ValueError: if `bits` is not in [1, 21], or a cell lies outside.

    Example:
        >>> z_order_codes(torch.tensor([[0, 0, 1], [1, 1, 0], [2, 0, 0]]), 2)
        tensor([ 1,  6, 32])
    """
    return _interleaved(_axes(cells, bits), bits)


def z_order_cells(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes int [N] to cells int32 [N, 3]."""
    return torch.stack(_separated(codes, bits), 1).int()


def hilbert_codes(cells: torch.Tensor, bits: int) -> torch.Tensor:
    """As `z_order_codes`, along the Hilbert curve.

    Example:
        >>> hilbert_codes(torch.tensor([[0, 0, 0], [0, 0, 1], [1, 0, 0]]), 1)
        tensor([0, 1, 7])
    """
    axes = _axes(cells, bits)
    for level in reversed(range(1, bits)):
        for axis in range(3):
            _untwist(axes, axis, level)
    axes[1] = axes[1] ^ axes[0]
    axes[2] = axes[2] ^ axes[1]
    turn = torch.zeros_like(axes[2])
    for level in reversed(range(1, bits)):
        turn = torch.where(axes[2] >> level & 1 > 0, turn ^ ((1 << level) - 1), turn)
    return _interleaved([axis ^ turn for axis in axes], bits)


def hilbert_cells(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes int [N] along the Hilbert curve to cells int32 [N, 3]."""
    axes = _separated(codes, bits)
    turn = axes[2] >> 1
    axes = [axes[0] ^ turn, axes[1] ^ axes[0], axes[2] ^ axes[1]]
    for level in range(1, bits):
        for axis in (2, 1, 0):
            _untwist(axes, axis, level)
    return torch.stack(axes, 1).int()


def site_codes(coords: torch.Tensor, bits: int, order: str = "z_order") -> torch.Tensor:
    """Codes int64 [N] of sites, the batch id in the bits above those of the cell.

    Args:
        coords: int32 [N, 4], (batch, *cell).
        bits: of an axis.
        order: "z_order" or "hilbert".

    Raises:
        ValueError: as of `z_order_codes`, or if `order` is another word.

    Example:
        >>> site_codes(torch.tensor([[2, 0, 0, 1]], dtype=torch.int32), 1)
        tensor([17])
    """
    codes = _curve(order)[0](coords[:, 1:], bits)
    return codes | coords[:, 0].long() << 3 * bits


def sites_of_codes(codes: torch.Tensor, bits: int, order: str = "z_order") -> torch.Tensor:
    """Sites int32 [N, 4] of codes int [N]; an int32 code is read as an unsigned number."""
    wide = codes.long() & 0xFFFFFFFF if codes.dtype == torch.int32 else codes
    batch = (wide >> 3 * bits).int()
    return torch.cat([batch[:, None], _curve(order)[1](wide, bits)], 1)


def _curve(order: str) -> tuple[Curve, Curve]:
    curves = {
        "z_order": (z_order_codes, z_order_cells),
        "hilbert": (hilbert_codes, hilbert_cells),
    }
    if order not in curves:
        _check.fail("order", f"one of {list(curves)}", repr(order))
    return curves[order]


def _untwist(axes: Axes, axis: int, level: int) -> None:
    """Where the axis has this bit, mirror axis 0 below it; elsewhere swap the two below it."""
    below = (1 << level) - 1
    mirrored = axes[axis] >> level & 1 > 0
    swap = ((axes[0] ^ axes[axis]) & below).masked_fill(mirrored, 0)
    axes[axis] = axes[axis] ^ swap
    axes[0] = torch.where(mirrored, axes[0] ^ below, axes[0] if axis == 0 else axes[0] ^ swap)


def _axes(cells: torch.Tensor, bits: int) -> Axes:
    _check_bits(bits)
    if _check.tensor("cells", cells, 2).shape[1] != 3:
        _check.fail("cells", "of shape [N, 3]", list(cells.shape))
    wide = cells.long()
    if wide.numel() and not bool(((wide >= 0) & (wide < 1 << bits)).all()):
        _check.fail("cells", f"in [0, {1 << bits})", f"{int(wide.min())} to {int(wide.max())}")
    return list(wide.unbind(1))


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= MOST_BITS:
        _check.fail("bits", f"in [1, {MOST_BITS}]", bits)


def _interleaved(axes: Axes, bits: int) -> torch.Tensor:
    code = torch.zeros_like(axes[0])
    for level in range(bits):
        for place, axis in enumerate(reversed(axes)):
            code |= (axis >> level & 1) << (3 * level + place)
    return code


def _separated(codes: torch.Tensor, bits: int) -> Axes:
    _check_bits(bits)
    wide = _check.tensor("codes", codes, 1).long()
    axes = [torch.zeros_like(wide) for _ in range(3)]
    for level in range(bits):
        for place, axis in enumerate(reversed(axes)):
            axis |= (wide >> (3 * level + place) & 1) << level  # noqa: PLW2901
    return axes
