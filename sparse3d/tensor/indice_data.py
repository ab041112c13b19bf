"""`IndiceData`: what a layer leaves under its `indice_key`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..geometry import Geometry
from ..kernel_map import Coordinates, KernelMap, edit_count


@dataclass(eq=False)
class IndiceData:
    """What a layer leaves under its `indice_key`: the kernel map and the two sets of sites.

    Property names are spconv's, for code that reads them.
    """

    kernel_map: KernelMap
    inputs: Coordinates
    outputs: Coordinates
    is_subm: bool

    def __post_init__(self) -> None:
        self._versions = (0, 0) if torch.compiler.is_compiling() else self._seen()

    def __reduce__(self) -> tuple[type[IndiceData], tuple[object, ...]]:
        return IndiceData, (self.kernel_map, self.inputs, self.outputs, self.is_subm)

    def _seen(self) -> tuple[int, int]:
        first = edit_count(self.inputs.indices)
        if self.outputs is self.inputs:
            return first, first
        return first, edit_count(self.outputs.indices)

    def is_current(self) -> bool:
        """Whether nobody edited the sites in place since the layer left this."""
        return torch.compiler.is_compiling() or self._versions == self._seen()

    @property
    def geometry(self) -> Geometry:
        return self.kernel_map.geometry

    @property
    def indices(self) -> torch.Tensor:
        return self.inputs.indices

    @property
    def out_indices(self) -> torch.Tensor:
        return self.outputs.indices

    @property
    def spatial_shape(self) -> list[int] | None:
        return listed(self.inputs.spatial_shape)

    @property
    def out_spatial_shape(self) -> list[int] | None:
        return listed(self.outputs.spatial_shape)

    @property
    def ksize(self) -> list[int]:
        return list(self.geometry.kernel_size)

    @property
    def stride(self) -> list[int]:
        return list(self.geometry.stride)

    @property
    def padding(self) -> list[int]:
        return list(self.geometry.padding)

    @property
    def dilation(self) -> list[int]:
        return list(self.geometry.dilation)

    @property
    def indice_pair_num(self) -> torch.Tensor:
        """Pairs per tap, int32 [K]."""
        return self.kernel_map.splits.diff().int()

    @property
    def indice_pairs(self) -> torch.Tensor:
        """Pairs as spconv lays them out, int32 [2, K, N], -1 where a tap has fewer."""
        counts = self.kernel_map.splits.diff()
        width = max(len(self.inputs), int(counts.max()))
        table = self.kernel_map.src.new_full((2, len(counts), width), -1)
        for tap, count in enumerate(counts.tolist()):
            src, dst = self.kernel_map.tap(tap)
            table[0, tap, :count], table[1, tap, :count] = src, dst
        return table

    @property
    def pair_fwd(self) -> torch.Tensor:
        """The input row that each output meets through each tap, int32 [K, M], or -1."""
        return self.kernel_map.neighbours().t().contiguous()

    @property
    def pair_bwd(self) -> torch.Tensor:
        """The output row that each input meets through each tap, int32 [K, N], or -1."""
        return self.kernel_map.transposed().neighbours().t().contiguous()

    def __iter__(self) -> Iterator[object]:
        """spconv 1.x's tuple: output sites, input sites, pairs, their counts, the inputs' grid."""
        yield from (self.out_indices, self.indices, self.indice_pairs, self.indice_pair_num)
        yield self.spatial_shape

    def __getitem__(self, place: int) -> object:
        """One of the five, as code for spconv 1.x reads them."""
        return tuple(self)[place]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> IndiceData:
        moved = self.kernel_map.to(device, non_blocking)
        first, second = moved.in_indices, moved.out_indices
        return IndiceData(
            moved,
            Coordinates(first, self.inputs.spatial_shape, self.inputs.batch_size),
            Coordinates(second, self.outputs.spatial_shape, self.outputs.batch_size),
            self.is_subm,
        )


def listed(shape: Sequence[int] | None) -> list[int] | None:
    """Axes as a list, which is what spconv's users compare with."""
    return None if shape is None else list(shape)
