"""What layers leave under a key: all that spconv code reads of it, and made of tables as such code
makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ....geometry import Geometry, submanifold_padding
from ....kernel_map import Coordinates, KernelMap
from ....nn._pair_tables import map_from_neighbours, map_from_pairs, masked_order
from ....nn.core import ConvAlgo
from ....tensor import IndiceData as _IndiceData

__all__ = ["ImplicitGemmIndiceData", "IndiceData"]

Sizes = Sequence[int]


class IndiceData(_IndiceData):
    """The kernel map and the sites of a layer, made of a pair table.

    Args:
        out_indices: int32 [M, 1 + D].
        indices: int32 [N, 1 + D].
        indice_pairs: int32 [2, K, N]; of a submanifold layer the first half of the taps is read.
        indice_pair_num: int32 [K].
        spatial_shape: grid of the inputs.
        out_spatial_shape: grid of the outputs.
        is_subm: outputs are the inputs.
        algo: kept.
        ksize: kernel size, one entry an axis; likewise the next three.
        stride: of the layer.
        dilation: of the layer.
        padding: of the layer.
        voxel_num: kept.
    """

    algo: ConvAlgo | None = None
    voxel_num: Any = None
    in_voxel_num: Any = None
    out_voxel_num: Any = None

    def __init__(
        self,
        out_indices: torch.Tensor,
        indices: torch.Tensor,
        indice_pairs: torch.Tensor,
        indice_pair_num: torch.Tensor,
        spatial_shape: Sizes,
        out_spatial_shape: Sizes,
        is_subm: bool,
        algo: ConvAlgo | None,
        ksize: Sizes,
        stride: Sizes,
        dilation: Sizes,
        padding: Sizes,
        voxel_num: Any = None,
    ) -> None:
        pairs = map_from_pairs(
            indice_pairs, indice_pair_num, len(indices), len(out_indices), subm=is_subm
        )
        sides = (indices, spatial_shape), (out_indices, out_spatial_shape)
        self._fill(pairs, *sides, is_subm, (ksize, stride, padding, dilation))
        self.algo, self.voxel_num = algo, voxel_num

    def _fill(
        self,
        pairs: KernelMap,
        inputs: tuple[torch.Tensor, Sizes],
        outputs: tuple[torch.Tensor, Sizes],
        is_subm: bool,
        sizes: tuple[Sizes, Sizes, Sizes, Sizes],
    ) -> None:
        size, step, shift, spread = (tuple(int(n) for n in values) for values in sizes)
        if is_subm:
            step, shift = (1,) * len(size), submanifold_padding(size, spread)
        geometry = Geometry(size, step, shift, spread)
        made = replace(pairs, in_indices=inputs[0], out_indices=outputs[0], geometry=geometry)
        batch = max(
            int(side[:, 0].max()) + 1 if len(side) else 1 for side in (inputs[0], outputs[0])
        )
        first = Coordinates(inputs[0], [int(n) for n in inputs[1]], batch)
        second = Coordinates(outputs[0], [int(n) for n in outputs[1]], batch)
        _IndiceData.__init__(self, made, first, first if is_subm else second, is_subm)

    @classmethod
    def left(
        cls,
        kernel_map: KernelMap,
        inputs: Coordinates,
        outputs: Coordinates,
        is_subm: bool,
        algo: ConvAlgo | None,
    ) -> IndiceData:
        """What a layer of ours leaves."""
        native = algo in (None, ConvAlgo.Native)
        made: IndiceData = object.__new__(IndiceData if native else ImplicitGemmIndiceData)
        _IndiceData.__init__(made, kernel_map, inputs, outputs, is_subm)
        made.algo = algo
        return made

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        kept = (self.kernel_map, self.inputs, self.outputs, self.is_subm, self.algo)
        return IndiceData.left, kept

    def to(self, device: torch.device | str, non_blocking: bool = False) -> IndiceData:
        moved = super().to(device, non_blocking)
        return self.left(moved.kernel_map, moved.inputs, moved.outputs, self.is_subm, self.algo)

    @property
    def pair_mask_fwd_splits(self) -> list[torch.Tensor]:
        """Taps that each output has a pair in, as bits: one int32 [M, words]."""
        return [masked_order(self.pair_fwd)[0]]

    @property
    def pair_mask_bwd_splits(self) -> list[torch.Tensor]:
        """The same of each input."""
        return [] if self.is_subm else [masked_order(self.pair_bwd)[0]]

    @property
    def mask_argsort_fwd_splits(self) -> list[torch.Tensor]:
        """Output rows sorted by their bits: one int32 [M]."""
        return [masked_order(self.pair_fwd)[1]]

    @property
    def mask_argsort_bwd_splits(self) -> list[torch.Tensor]:
        """The same of the inputs."""
        return [] if self.is_subm else [masked_order(self.pair_bwd)[1]]

    @property
    def masks(self) -> list[npt.NDArray[np.uint32]]:
        """Taps that each split reads: all."""
        return [np.array([0xFFFFFFFF], dtype=np.uint32)]


class ImplicitGemmIndiceData(IndiceData):
    """The same made of a neighbour table [K, M]; `pair_bwd`, masks and orders follow from it."""

    def __init__(
        self,
        out_indices: torch.Tensor,
        indices: torch.Tensor,
        pair_fwd: torch.Tensor,
        pair_bwd: torch.Tensor,
        pair_mask_fwd_splits: Sequence[torch.Tensor],
        pair_mask_bwd_splits: Sequence[torch.Tensor],
        mask_argsort_fwd_splits: Sequence[torch.Tensor],
        mask_argsort_bwd_splits: Sequence[torch.Tensor],
        masks: Sequence[Any],
        spatial_shape: Sizes,
        out_spatial_shape: Sizes,
        is_subm: bool,
        algo: ConvAlgo | None,
        ksize: Sizes,
        stride: Sizes,
        dilation: Sizes,
        padding: Sizes,
        in_voxel_num: Any = None,
        out_voxel_num: Any = None,
    ) -> None:
        pairs = map_from_neighbours(pair_fwd, len(indices))
        sides = (indices, spatial_shape), (out_indices, out_spatial_shape)
        self._fill(pairs, *sides, is_subm, (ksize, stride, padding, dilation))
        self.algo = algo
        self.in_voxel_num, self.out_voxel_num = in_voxel_num, out_voxel_num
