"""Three nearest neighbours and their weighted mean: feature propagation of PointNet++.

Meaning: `three_nn` finds for each unknown point the three nearest known ones; `three_interpolate`
sums features of three known points with given weights.
Formula: distances as `knn`; `out[b, c, i] = (w0 f[idx0] + w1 f[idx1]) + w2 f[idx2]`, each
operation rounded on its own in float32 (float64 for float64), the sum rounded to the features'
dtype. Order and ties: ascending `(d, index)`. Padding: none, fewer than three known points is a
ValueError; with `pad=True` (as PointNet++'s own) one or two are enough and the rest is index 0 at
distance infinity. No unknown points give no neighbours.
`inverse_distance_weights`: `(1 / (d + 1e-8)) / sum of it over the neighbours`.
Gradient: `three_interpolate` to features (summed in ascending order of place) and to weights;
`three_nn` none.
Determinism: same bytes on every backend and with any number of threads.

Example:
    >>> import torch
    >>> from sparse3d.pointops import three_interpolate, three_nn
    >>> known = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [2, 0, 0]]])
    >>> distance, index = three_nn(torch.zeros(1, 1, 3), known)
    >>> distance.tolist(), index.tolist()
    ([[[0.0, 1.0, 2.0]]], [[[0, 1, 2]]])
    >>> weight = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> three_interpolate(torch.tensor([[[4.0, 8.0, 16.0]]]), index, weight).tolist()
    [[[8.0]]]
"""

from __future__ import annotations

from typing import Any

import torch

from sparse3d._check import FLOATS, fail, fail_type, same_device, tensor
from sparse3d._registry import Op

from . import _clouds, _inputs
from .group import feature_map, gather_columns, scatter_columns
from .knn import search

CLOSE = 1e-8


def _reference(features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Three gathers, three products, two sums."""
    batch, channels, _ = features.shape
    wide = features if features.dtype == torch.float64 else features.float()
    total = wide.new_zeros((batch, channels, idx.shape[1]))
    for corner in range(3):
        place = idx[:, None, :, corner].expand(batch, channels, idx.shape[1])  # [B, C, n]
        term = wide.gather(2, place) * weight[:, None, :, corner]
        total = term if corner == 0 else total + term
    return total.to(features.dtype)


def _fake(features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return features.new_empty((features.shape[0], features.shape[1], idx.shape[1]))


interpolate_columns = Op(
    "interpolate_columns(Tensor features, Tensor idx, Tensor weight) -> Tensor",
    reference=_reference,
    fake=_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    features, idx, weight = ctx.saved_tensors
    batch, channels, columns = features.shape
    places = idx.shape[1]
    to_features = to_weight = None
    if ctx.needs_input_grad[0]:
        spread = (grad[..., None].to(weight.dtype) * weight[:, None]).reshape(batch, channels, -1)
        rows = scatter_columns(spread, idx.reshape(batch, -1), columns)
        to_features = rows.to(features.dtype)
    if ctx.needs_input_grad[2]:
        corners = gather_columns(features, idx.reshape(batch, -1))
        corners = corners.view(batch, channels, places, 3).to(weight.dtype)
        to_weight = (corners * grad[..., None]).sum(1)
    return to_features, None, to_weight


interpolate_columns.gradient(_backward, _setup)


def three_nn(
    unknown: torch.Tensor, known: torch.Tensor, *, pad: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The three nearest known points of each unknown one.

    Args:
        unknown: (B, n, 3) floating.
        known: (B, m, 3), m >= 3, same dtype and device.
        pad: take fewer known points too, index 0 at distance infinity in place of the missing.

    Returns:
        Euclidean distances (B, n, 3), ascending, no gradient; int32 indices (B, n, 3).
    """
    _inputs.points("unknown", unknown, 3, 3)
    _inputs.points("known", known, 3, 3)
    _inputs.alike("unknown", unknown, "known", known)
    _inputs.peopled("known", known)
    batch, places, _ = unknown.shape
    if batch and places and known.shape[1] < 3 and not pad:
        fail("known", "at least 3 points a cloud", known.shape[1], "use knn with a smaller k")
    distances, indices = search(
        unknown.detach().reshape(-1, 3),
        known.detach().reshape(-1, 3),
        _clouds.dense(batch, places, known.shape[1]),
        3,
        "euclidean",
    )
    indices = indices.clamp_min(0).int() if pad else indices.int()
    return distances.view(batch, places, 3), indices.view(batch, places, 3)


def inverse_distance_weights(distances: torch.Tensor) -> torch.Tensor:
    """Weights of neighbours for `three_interpolate`; those of each point add up to 1.

    Args:
        distances: (B, n, k) floating, Euclidean; infinity weighs nothing.

    Returns:
        (B, n, k) of the same dtype.
    """
    closeness = 1.0 / (tensor("distances", distances, 3) + CLOSE)
    return closeness / closeness.sum(2, keepdim=True)


def three_interpolate(
    features: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sum of three known points' features.

    Args:
        features: (B, C, m) floating.
        indices: (B, n, 3) int32 or int64 in [0, m).
        weights: (B, n, 3) float64 where the features are, else float32, float16 or bfloat16.

    Returns:
        (B, C, n) of the features' dtype.
    """
    feature_map("features", features)
    _inputs.index("indices", indices, 3, features.shape[2], pad=False)
    tensor("weights", weights, 3)
    same_device(features=features, indices=indices, weights=weights)
    if weights.dtype not in FLOATS:
        fail_type("weights", "floating", weights.dtype)
    if indices.shape[0] != features.shape[0] or indices.shape[2] != 3:
        fail("indices", f"of shape ({features.shape[0]}, n, 3)", list(indices.shape))
    if weights.shape != indices.shape:
        fail("weights", f"of shape {list(indices.shape)} as indices has", list(weights.shape))
    wide = torch.float64 if features.dtype == torch.float64 else torch.float32
    if (weights.dtype == torch.float64) != (wide == torch.float64):
        wanted = "float64" if wide == torch.float64 else "float32 or lower"
        way_out = "convert one with .to(dtype)"
        fail("weights", f"{wanted} as features is", weights.dtype, way_out)
    out: torch.Tensor = interpolate_columns(
        features.contiguous(), indices.long().contiguous(), weights.to(wide).contiguous()
    )
    return out
