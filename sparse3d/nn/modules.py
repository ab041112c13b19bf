"""Module base, the sequential container, norms and activations on sparse tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import nn

from .. import _check
from ..ops.norm import batch_norm, batch_norm_relu
from ..tensor import SparseConvTensor
from ._room import Room
from ._room_norm import room_norm

__all__ = [
    "PrintCurrentTime",
    "PrintTensorMeta",
    "RemoveGrid",
    "SparseBatchNorm",
    "SparseIdentity",
    "SparseModule",
    "SparseReLU",
    "SparseSequential",
    "SparseSyncBatchNorm",
    "ToDense",
    "assign_name_for_sparse_modules",
    "is_sparse_conv",
    "is_spconv_module",
]


class SparseModule(nn.Module):
    """Base of layers that take and give sparse tensors; `SparseSequential` hands them over whole.

    Args:
        name: shown in error messages.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""


class SparseBatchNorm(nn.BatchNorm1d):
    """Batch norm over all sites of the batch: `torch.nn.BatchNorm1d`'s parameters and rule.

    In training the sums run in fixed chunks, so that bytes do not depend on the thread count;
    a batch of one row gives the bias, one of no rows passes through and leaves statistics alone.
    """

    def forward(self, input: Any) -> Any:
        if isinstance(input, SparseConvTensor):
            if self.training and isinstance(input._coordinates, Room):
                return input.replace_feature(room_norm(self, input._coordinates, input.features))
            return input.replace_feature(normalize_rows(self, input.features))
        return normalize_rows(self, input)


class SparseSyncBatchNorm(nn.SyncBatchNorm):
    """Batch norm over the sites of all processes."""

    def forward(self, input: Any) -> Any:
        if isinstance(input, SparseConvTensor):
            return input.replace_feature(super().forward(input.features))
        return super().forward(input)


class SparseReLU(nn.ReLU):
    """ReLU on the features."""

    def forward(self, input: Any) -> Any:
        if isinstance(input, SparseConvTensor):
            return input.replace_feature(super().forward(input.features))
        return super().forward(input)


class SparseIdentity(nn.Identity):
    """Gives back what it takes."""


class ToDense(SparseModule):
    """Sparse to dense, [B, C, *spatial_shape]."""

    def forward(self, x: SparseConvTensor) -> torch.Tensor:
        return x.dense()


class RemoveGrid(SparseModule):
    """Drop the legacy `grid` buffer."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        out = x.shadow_copy()
        out.grid = torch.empty(0, dtype=torch.int32)
        return out


class PrintTensorMeta(nn.Module):
    """Print what passes: shape, grid and density."""

    def forward(self, x: Any) -> Any:
        print(x)  # noqa: T201
        return x


class PrintCurrentTime(nn.Module):
    """Print the time at which something passes."""

    def forward(self, x: Any, msg: str = "", reset: bool = False) -> Any:
        import time

        print(msg, time.strftime("%H:%M:%S"))  # noqa: T201
        return x


def normalize_rows(norm: nn.BatchNorm1d, features: torch.Tensor) -> torch.Tensor:
    """Apply a batch norm module to feature rows with fixed-order sums, whatever the row count."""
    _check.channels(type(norm).__name__, norm.num_features, features.shape[1])
    use_batch = norm.training or norm.running_mean is None
    momentum = _count_batch(norm, features.shape[0])
    track = norm.running_mean is not None and (not norm.training or norm.track_running_stats)
    return batch_norm(
        features,
        norm.running_mean if track else None,
        norm.running_var if track else None,
        norm.weight,
        norm.bias,
        use_batch,
        momentum,
        norm.eps,
    )


def normalize_and_relu(
    norm: nn.BatchNorm1d, features: torch.Tensor, residual: torch.Tensor | None
) -> torch.Tensor:
    """`relu(normalize_rows(norm, features) + residual)` of a norm in training."""
    _check.channels(type(norm).__name__, norm.num_features, features.shape[1])
    momentum = _count_batch(norm, features.shape[0])
    track = norm.track_running_stats
    return batch_norm_relu(
        features,
        norm.running_mean if track else None,
        norm.running_var if track else None,
        norm.weight,
        norm.bias,
        momentum,
        norm.eps,
        residual,
    )


def _count_batch(norm: nn.BatchNorm1d, rows: int) -> float:
    """Count a batch of training; the share that its statistics have in the running ones."""
    momentum = 0.0 if norm.momentum is None else norm.momentum
    if norm.training and norm.num_batches_tracked is not None and rows > 0:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:
            momentum = 1.0 / float(norm.num_batches_tracked)
    return momentum


def is_spconv_module(module: nn.Module) -> bool:
    """Whether `SparseSequential` hands the sparse tensor over whole."""
    kinds = (SparseModule, SparseBatchNorm, SparseSyncBatchNorm, SparseReLU, SparseIdentity)
    return isinstance(module, kinds)


def is_sparse_conv(module: nn.Module) -> TypeGuard[Any]:
    """Whether a module is a sparse convolution."""
    from ._convolution import SparseConvolution

    return isinstance(module, SparseConvolution)


def assign_name_for_sparse_modules(module: nn.Module) -> None:
    """Give every sparse module its dotted path as a name, for messages."""
    for path, child in module.named_modules():
        if isinstance(child, SparseModule):
            child._sparse_unique_name = path


class SparseSequential(SparseModule):
    """Sequential container: sparse layers take the tensor, torch layers act on its features.

    Children are given in turn, as an OrderedDict, or by keyword; keys are those of
    `torch.nn.Sequential`. In eval without gradients a run of conv, batch norm and activation is
    computed in one pass; parameters stay as they are. In training `SparseBatchNorm` and a ReLU
    after it are computed in fewer passes, to the same values.

    A residual block is `net(x, add_input=side)`: the side is added before a last ReLU, LeakyReLU
    or Sigmoid, else after all children, and costs nothing where that run is computed in one pass.
    """

    def __init__(self, *args: Any, **kwargs: nn.Module) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for index, module in enumerate(args):
                self.add_module(str(index), module)
        for key, module in kwargs.items():
            if key in self._modules:
                _check.fail("name", "not taken by another child", repr(key))
            self.add_module(key, module)

    def __getitem__(self, index: int) -> nn.Module:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be in [{-len(self)}, {len(self)}), got {index}")
        return list(self)[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for module in self._modules.values() if module is not None)

    @property
    def sparity_dict(self) -> dict[str, float]:
        return {}

    def add(self, module: nn.Module, name: str | None = None) -> None:
        """Append a child."""
        key = str(len(self._modules)) if name is None else name
        if key in self._modules:
            _check.fail("name", "not taken by another child", repr(key))
        self.add_module(key, module)

    def forward(self, input: Any, add_input: SparseConvTensor | None = None) -> Any:
        # Dynamo of torch 2.7 cannot iterate over a module of ours.
        children = [module for module in self._modules.values() if module is not None]
        return run_children(children, input, add_input)


def run_children(
    children: Sequence[nn.Module], input: Any, add_input: SparseConvTensor | None = None
) -> Any:
    """What `SparseSequential` does with its children."""
    from ._fusion import fused_norm, fused_run, residual_place

    place, position = residual_place(children), 0
    while position < len(children):
        run = fused_run(children, position, input, add_input, place)
        if run is None:
            run = fused_norm(children, position, input, add_input, place)
        if run is not None:
            input, position, add_input = run
            continue
        child, here = children[position], position == place and add_input is not None
        if here and is_sparse_conv(child):
            input, add_input = child(input, add_input), None
        else:
            if here:
                input, add_input = input + add_input, None
            if isinstance(input, SparseConvTensor):
                check_width(child, position, input.features.shape[1])
            input = apply_child(child, input)
        position += 1
    return input if add_input is None else input + add_input


def check_width(child: nn.Module, position: int, channels: int) -> None:
    """Refuse rows of a width that a norm or linear child does not take, naming the child."""
    if isinstance(child, (nn.BatchNorm1d, nn.SyncBatchNorm)):
        wanted = child.num_features
    elif isinstance(child, nn.Linear):
        wanted = child.in_features
    else:
        return
    if wanted:  # a lazy one takes any
        _check.channels(f"child {position} ({type(child).__name__})", wanted, channels)


def apply_child(module: nn.Module, value: Any) -> Any:
    """A child of a container on what it is given: whole, or the features alone."""
    if is_spconv_module(module) or not isinstance(value, SparseConvTensor):
        return module(value)
    sites = value._coordinates
    if isinstance(module, nn.BatchNorm1d) and module.training and isinstance(sites, Room):
        return value.replace_feature(room_norm(module, sites, value.features))
    if isinstance(module, nn.BatchNorm1d) and module.training and len(value.features) < 2:
        # torch refuses one row in training; a scene may well have one voxel.
        return value.replace_feature(normalize_rows(module, value.features))
    return value.replace_feature(module(value.features))
