"""spconv 1.x: tensors whose features are assigned, and layers with its arguments, its kernels
`[*kernel_size, C_in, C_out]` and its way with keys: one dictionary for all tensors of a pass, and a
submanifold layer takes the pairs that it finds under its key."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from ... import _check
from ...kernel_map import Coordinates, KernelMap
from ...nn.modules import apply_child, is_spconv_module, run_children
from ...tensor import IndiceData
from ...tensor import SparseConvTensor as _Tensor
from . import pytorch
from .pytorch.conv import SparseConvolution as _SparseConvolution
from .pytorch.core import SparseConvTensor as _SparseConvTensor

__all__ = [
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseSequential",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
]


class SparseConvTensor(_SparseConvTensor):
    """The tensor of `import spconv`: 1.x code assigns `.features`."""

    @property
    def features(self) -> torch.Tensor:
        return self._features

    @features.setter
    def features(self, value: torch.Tensor) -> None:
        self._features = value

    @property
    def sparity(self) -> float:
        """Share of active cells (1.x spells it so)."""
        return len(self) / (self.spatial_size * self.batch_size)


class SparseSequential(pytorch.SparseSequential):
    """The container of 1.x: torch layers before the first sparse one write their result into the
    tensor that it is given."""

    def forward(self, input: Any, add_input: _Tensor | None = None) -> Any:
        children = [module for module in self._modules.values() if module is not None]
        done = 0
        if isinstance(input, SparseConvTensor):
            while done < len(children) and not is_spconv_module(children[done]):
                if len(input):
                    input.features = apply_child(children[done], input).features
                done += 1
        return run_children(children[done:], input, add_input)


class SparseConvolution(_SparseConvolution):
    """Every sparse convolution of 1.x.

    Args:
        *args: as `spconv.pytorch`'s.
        fused_bn: accepted; a bias is added in the same pass always.
        use_hash: accepted; it chose among 1.x's map builders.
        **kwargs: as `spconv.pytorch`'s.
    """

    checkpoint_layout: ClassVar[str] = "spconv-1"
    stores_transposed = False

    def __init__(
        self, *args: Any, fused_bn: bool = False, use_hash: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fused_bn, self.use_hash = fused_bn, use_hash
        self.weight = nn.Parameter(self.weight.detach().movedim(0, -1).contiguous())

    def as_kernel(self, stored: torch.Tensor) -> torch.Tensor:
        """What the parameter stores as a true weight [out, *kernel_size, in]."""
        return stored.movedim(-1, 0)

    def from_canonical(self, kernel: torch.Tensor) -> torch.Tensor:
        """A true kernel [out, *kernel_size, in] as the parameter stores it."""
        made = kernel.movedim(0, -1)
        if made.shape != self.weight.shape:
            wanted = f"of shape {list(self.as_kernel(self.weight).shape)}"
            _check.fail("kernel", wanted, list(kernel.shape))
        return made

    def _map(
        self, input: _Tensor, sites: Coordinates
    ) -> tuple[KernelMap, Coordinates, dict[str, IndiceData]]:
        shared = input.indice_dict
        found = None if self.is_pointwise else self._found(input)
        if found is not None and self.subm and found.is_subm and len(found.inputs) == len(sites):
            taps = found.kernel_map.num_taps
            if found.geometry != self.geometry and taps == self.geometry.volume:
                return found.kernel_map, sites, shared
        pairs, target, kept = super()._map(input, sites)
        shared.update(kept)
        return pairs, target, shared

    def _found(self, input: _Tensor) -> IndiceData | None:
        """What lies under the key; the five of which 1.x code makes a tuple are read as a map."""
        found: Any = input.find_indice_pair(self.indice_key)
        if isinstance(found, tuple) and self.indice_key is not None:
            outids, indices, pairs, counts, shape = found
            sizes = self.kernel_size, self.stride, self.dilation, self.padding
            after = input.spatial_shape or shape
            found = pytorch.core.IndiceData(
                outids, indices, pairs, counts, shape, after, self.subm, None, *sizes
            )
            input.indice_dict[self.indice_key] = found
        kept: IndiceData | None = found
        return kept


class SparseConv1d(SparseConvolution, pytorch.SparseConv1d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose1d(SparseConvolution, pytorch.SparseConvTranspose1d):
    """As `spconv.pytorch`'s."""


class SparseInverseConv1d(SparseConvolution, pytorch.SparseInverseConv1d):
    """As `spconv.pytorch`'s."""


class SubMConv1d(SparseConvolution, pytorch.SubMConv1d):
    """As `spconv.pytorch`'s."""


class SparseConv2d(SparseConvolution, pytorch.SparseConv2d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose2d(SparseConvolution, pytorch.SparseConvTranspose2d):
    """As `spconv.pytorch`'s."""


class SparseInverseConv2d(SparseConvolution, pytorch.SparseInverseConv2d):
    """As `spconv.pytorch`'s."""


class SubMConv2d(SparseConvolution, pytorch.SubMConv2d):
    """As `spconv.pytorch`'s."""


class SparseConv3d(SparseConvolution, pytorch.SparseConv3d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose3d(SparseConvolution, pytorch.SparseConvTranspose3d):
    """As `spconv.pytorch`'s."""


class SparseInverseConv3d(SparseConvolution, pytorch.SparseInverseConv3d):
    """As `spconv.pytorch`'s."""


class SubMConv3d(SparseConvolution, pytorch.SubMConv3d):
    """As `spconv.pytorch`'s."""


class SparseConv4d(SparseConvolution, pytorch.SparseConv4d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose4d(SparseConvolution, pytorch.SparseConvTranspose4d):
    """As `spconv.pytorch`'s."""


class SparseInverseConv4d(SparseConvolution, pytorch.SparseInverseConv4d):
    """As `spconv.pytorch`'s."""


class SubMConv4d(SparseConvolution, pytorch.SubMConv4d):
    """As `spconv.pytorch`'s."""
