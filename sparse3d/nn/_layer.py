"""What convolutions and pools share: their name in messages, the check of their input, the voxel
count of training."""

from __future__ import annotations

from typing import Any

import torch

from .. import _check
from ..kernel_map import Coordinates, KernelMap
from ..tensor import IndiceData, SparseConvTensor
from .modules import SparseModule

_COUNT = "max_num_voxels_during_training"


class SitesLayer(SparseModule):
    """A layer that reads sites over `ndim` axes and may make others."""

    ndim: int
    subm: bool
    _counts = False

    def get_max_num_voxels(self) -> torch.Tensor | None:
        """The recorded largest row count, int32 [1], if `record_voxel_count`."""
        return getattr(self, _COUNT, None)

    def _count_voxels(self, device: torch.device | str | None) -> None:
        self._counts = True
        self.register_buffer(_COUNT, torch.zeros(1, dtype=torch.int32, device=device))

    def _record(self, rows: int) -> None:
        if not self._counts or not self.training:
            return
        recorded = self.get_max_num_voxels()
        if recorded is not None:
            recorded.clamp_(min=rows)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        key = prefix + _COUNT
        if self.get_max_num_voxels() is not None and key not in state_dict:
            state_dict = {**state_dict, key: torch.zeros(1, dtype=torch.int32)}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _label(self) -> str:
        path = self._sparse_unique_name or self.name
        kind = type(self).__name__
        return f"{kind} '{path}'" if path else kind

    def _sites(self, input: SparseConvTensor) -> Coordinates:
        """The sites of an input, which is checked where that is not known to be needless."""
        known = None if torch.compiler.is_compiling() else input._known_sites()
        return input.sites(self._label()) if known is None else known

    def _leave(self, pairs: KernelMap, inputs: Coordinates, outputs: Coordinates) -> IndiceData:
        """What is kept under the layer's key."""
        return IndiceData(pairs, inputs, outputs, self.subm)

    def _check_input(self, input: object) -> None:
        if (
            isinstance(input, SparseConvTensor)
            and input._indices.shape[1] == self.ndim + 1
            and input._features.dtype != torch.qint8
        ):
            return
        if not isinstance(input, SparseConvTensor):
            got = type(input).__name__
            _check.fail_type(f"{self._label()}: input", "a SparseConvTensor", got)
        if input.is_quantized:
            raise NotImplementedError(
                f"{self._label()}: input must be floating, got {input.dtype}; int8 quantisation is "
                "not implemented, call dequantize() first"
            )
        if input.ndim != self.ndim:
            _check.fail(f"{self._label()}: input", f"of {self.ndim} axes", input.ndim)
