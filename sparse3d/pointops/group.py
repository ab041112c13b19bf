"""Gather and group: columns of a channel-first feature map by index.

Meaning: `gather(features, idx)[b, c, i] = features[b, c, idx[b, i]]`; `group` does the same for
neighbourhoods: `group(features, idx)[b, c, i, j] = features[b, c, idx[b, i, j]]`.
`group_offsets(xyz, centres, idx)[b, :, i, j] = xyz[b, idx[b, i, j]] - centres[b, i]`.
Padding: index -1 (as `ball_query` pads) gives zeros and receives no gradient.
Dtypes: float32, float16, bfloat16, float64; indices int32 or int64. Values are copied, not rounded.
Gradient: to the features, summed over the places an index occurs at, in ascending order of place;
accumulated in float32 (float64 for float64).
Determinism: same bytes on every backend and with any number of threads.
Errors: an index outside [-1, N); batch sizes or devices that differ.

Example:
    >>> import torch
    >>> from sparse3d.pointops import gather, group
    >>> features = torch.tensor([[[10.0, 20.0, 30.0]]])
    >>> gather(features, torch.tensor([[2, 0]])).tolist()
    [[[30.0, 10.0]]]
    >>> group(features, torch.tensor([[[1, -1]]])).tolist()
    [[[[20.0, 0.0]]]]
"""

from __future__ import annotations

from typing import Any

import torch

from sparse3d._check import FLOATS, fail, fail_type, same_device, tensor
from sparse3d._registry import Op
from sparse3d.ops.segment import segment_sum

from . import _inputs


def _reference(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """torch.gather, with -1 read as zero."""
    batch, channels, _ = features.shape
    if features.shape[2] == 0:
        return features.new_zeros((batch, channels, idx.shape[1]))
    place = idx[:, None, :].expand(batch, channels, idx.shape[1])  # [B, C, P]
    return torch.where(place >= 0, features.gather(2, place.clamp_min(0)), 0)


def _fake(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    return features.new_empty((features.shape[0], features.shape[1], idx.shape[1]))


gather_columns = Op(
    "gather_columns(Tensor features, Tensor idx) -> Tensor", reference=_reference, fake=_fake
)


def scatter_columns(grad: torch.Tensor, idx: torch.Tensor, columns: int) -> torch.Tensor:
    """The transpose of `gather_columns`: [B, C, P] summed into [B, C, columns], in order."""
    batch, channels, _ = grad.shape
    first = torch.arange(batch, device=idx.device)[:, None] * columns
    rows = torch.where(idx >= 0, idx + first, 0).reshape(-1)
    values = torch.where((idx >= 0)[:, None, :], grad, 0).transpose(1, 2).reshape(-1, channels)
    if batch * columns == 0:
        return grad.new_zeros((batch, channels, columns))
    total: torch.Tensor = segment_sum(values, rows, batch * columns)
    return total.view(batch, columns, channels).transpose(1, 2)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.columns = inputs[0].shape[2]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return scatter_columns(grad, ctx.saved_tensors[0], ctx.columns), None


gather_columns.gradient(_backward, _setup)


def feature_map(name: str, value: Any) -> torch.Tensor:
    """A channel-first map (B, C, N) of a floating dtype."""
    features = tensor(name, value, 3)
    if features.dtype not in FLOATS:
        fail_type(
            name, "float32, float16, bfloat16 or float64", features.dtype, "convert with .float()"
        )
    return features


def gather(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Columns of a feature map.

    Args:
        features: (B, C, N) floating.
        idx: (B, n) int64 or int32 in [-1, N).

    Returns:
        (B, C, n) of the features' dtype.
    """
    return group(features, _inputs.index("idx", idx, 2, features.shape[-1], pad=True)[..., None])[
        ..., 0
    ]


def group(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Neighbourhoods of a feature map.

    Args:
        features: (B, C, N) floating.
        idx: (B, n, s) int64 or int32 in [-1, N).

    Returns:
        (B, C, n, s) of the features' dtype.
    """
    feature_map("features", features)
    _inputs.index("idx", idx, 3, features.shape[2], pad=True)
    same_device(features=features, idx=idx)
    if features.shape[0] != idx.shape[0]:
        fail("idx", f"of batch size {features.shape[0]} as features has", idx.shape[0])
    batch, places, samples = idx.shape
    flat: torch.Tensor = gather_columns(
        features.contiguous(), idx.long().reshape(batch, places * samples)
    )
    return flat.view(batch, features.shape[1], places, samples)


def group_offsets(xyz: torch.Tensor, centres: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Positions of neighbours relative to their centre, channel first.

    Args:
        xyz: (B, N, D) floating.
        centres: (B, n, D), same dtype and device.
        idx: (B, n, s) int64 or int32 in [-1, N); -1 stands for the origin.

    Returns:
        (B, D, n, s); gradient to both clouds.
    """
    _inputs.shaped("xyz", xyz, 3)
    _inputs.shaped("centres", centres, 3)
    _inputs.alike("xyz", xyz, "centres", centres)
    if tensor("idx", idx, 3).shape[1] != centres.shape[1]:
        fail("idx", f"of {centres.shape[1]} rows, one a centre", idx.shape[1])
    return group(xyz.transpose(1, 2), idx) - centres.transpose(1, 2)[..., None]
