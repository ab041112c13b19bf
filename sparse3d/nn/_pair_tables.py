"""Kernel maps in spconv's two layouts, and back.

*Pair table*: int32 [2, K, N], input rows and output rows of each tap, -1 behind the last pair. A
submanifold table counts its first half only: tap K - 1 - t is tap t with the roles swapped, and the
centre tap is the identity. *Neighbour table* (implicit GEMM): int32 [K, M], the input row that each
output meets through each tap, or -1.
"""

from __future__ import annotations

import torch

from .. import _check
from ..geometry import Geometry
from ..kernel_map import KernelMap
from ..ops.order import count_ids, order_keys

__all__ = ["map_from_neighbours", "map_from_pairs", "neighbour_table", "pair_table"]


def _made(
    tap: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, taps: int, num_in: int, num_out: int
) -> KernelMap:
    """A map of loose pairs: sorted by tap, then dst; sites are unknown, so they have no columns."""
    order = order_keys(tap * max(num_out, 1) + dst)
    counts = count_ids(tap, taps).cpu()
    splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    no_columns = {"dtype": torch.int32, "device": src.device}
    return KernelMap(
        src[order].int(),
        dst[order].int(),
        splits,
        torch.empty((num_in, 0), **no_columns),  # type: ignore[call-overload]
        torch.empty((num_out, 0), **no_columns),  # type: ignore[call-overload]
        Geometry((taps,), (1,), (0,), (1,)),
    )


def _check_rows(name: str, rows: torch.Tensor, limit: int) -> None:
    if len(rows) and not 0 <= int(rows.amin()) <= int(rows.amax()) < limit:
        worst = int(rows.amin()) if int(rows.amin()) < 0 else int(rows.amax())
        _check.fail(name, f"in [0, {limit})", worst, "counts beyond indice_pair_num stay unread")


def map_from_pairs(
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_in: int,
    num_out: int,
    *,
    subm: bool = False,
    inverse: bool = False,
) -> KernelMap:
    """The map of a pair table.

    Args:
        indice_pairs: int32 [2, K, N].
        indice_pair_num: int32 [K].
        num_in: rows on the side of the features.
        num_out: rows on the side of the result.
        subm: the table counts its first half only.
        inverse: swap the roles.
    """
    _check.tensor("indice_pairs", indice_pairs, 3)
    counts = _check.tensor("indice_pair_num", indice_pair_num, 1).long()
    taps = indice_pairs.shape[1]
    if indice_pairs.shape[0] != 2 or len(counts) != taps:
        got = f"{list(indice_pairs.shape)} and {list(counts.shape)}"
        _check.fail("indice_pairs and indice_pair_num", "of shapes [2, K, N] and [K]", got)
    device = indice_pairs.device
    counts = counts.to(device)
    if subm:
        counts = counts.where(torch.arange(taps, device=device) < taps // 2, 0)
    place = torch.arange(indice_pairs.shape[2], device=device)
    tap, column = (place < counts[:, None]).nonzero(as_tuple=True)
    src, dst = indice_pairs[0, tap, column].long(), indice_pairs[1, tap, column].long()
    if inverse:
        src, dst = dst, src
    _check_rows("indice_pairs: input rows", src, num_in)
    _check_rows("indice_pairs: output rows", dst, num_out)
    if subm:
        rows = torch.arange(num_in, device=device)
        tap = torch.cat([tap, taps - 1 - tap, torch.full_like(rows, taps // 2)])
        src, dst = torch.cat([src, dst, rows]), torch.cat([dst, src, rows])
    return _made(tap, src, dst, taps, num_in, num_out)


def map_from_neighbours(neighbours: torch.Tensor, num_in: int) -> KernelMap:
    """The map of a neighbour table int32 [K, M]."""
    _check.tensor("pair_fwd", neighbours, 2)
    tap, dst = (neighbours >= 0).nonzero(as_tuple=True)
    src = neighbours[tap, dst].long()
    _check_rows("pair_fwd: input rows", src, num_in)
    return _made(tap, src, dst, neighbours.shape[0], num_in, neighbours.shape[1])


def pair_table(pairs: KernelMap, *, subm: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """A map as spconv's [2, K, N] table and its counts [K]."""
    counts = pairs.splits.diff()
    width = max(pairs.num_in, int(counts.max()))
    table = pairs.src.new_full((2, len(counts), width), -1)
    tap = pairs.taps()
    place = torch.arange(len(pairs), device=tap.device) - pairs.splits.to(tap.device)[tap]
    table[0, tap, place], table[1, tap, place] = pairs.src, pairs.dst
    if subm:
        counts = counts.where(torch.arange(len(counts)) < len(counts) // 2, 0)
    return table, counts.int().to(table.device)


def neighbour_table(pairs: KernelMap) -> torch.Tensor:
    """A map as an int32 [K, M] table."""
    return pairs.neighbours().t().contiguous()


def occupancy(neighbours: torch.Tensor) -> torch.Tensor:
    """Bit t of word t // 32 of an output's mask says that tap t has an input: int32 [M, words]."""
    taps, rows = neighbours.shape
    words = -(-taps // 32)
    bits = torch.zeros((words * 32, rows), dtype=torch.int64, device=neighbours.device)
    bits[:taps] = (neighbours >= 0).long()
    weights = 2 ** torch.arange(32, device=bits.device)
    packed = (bits.reshape(words, 32, rows) * weights[:, None]).sum(1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int().t().contiguous()


def masked_order(neighbours: torch.Tensor, sort: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The occupancy of a neighbour table, and its output rows sorted by it, int32 [M]."""
    mask = occupancy(neighbours)
    rows = torch.arange(len(mask), device=mask.device)
    return mask, (order_keys(mask[:, 0]) if sort else rows).int()
