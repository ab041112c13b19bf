"""Chamfer distance between padded clouds.

Meaning: how far each point of one cloud is from the other cloud, summed both ways.
Formula: `cham_x[i] = min_j d(x_i, y_j)`, d squared Euclidean (`norm=2`) or L1 (`norm=1`) as in
`_distance`; `point_reduction` over the valid points of a cloud: mean, sum, max or None; the two
directions are added (`max`: their maximum; None: a pair); `weights` multiply clouds;
`batch_reduction`: mean (over the sum of weights where given), sum or None.
Normals: `1 - |cos(n_x, n_nearest)|`, without the modulus if `abs_cosine=False`; reduced likewise.
Order and ties: of equal distances the reference point of lower index is the nearest.
Padding: points past `lengths` count nowhere and carry no gradient; a cloud whose length is 0, or
whose partner's is, adds 0 (and gradient 0).
Gradient: to both clouds through the distances and to the normals; the choice of neighbour is
constant. Accumulation: float32 (float64 for float64).
Errors: a padded size of 0, lengths beyond the padding, negative or infinite weights, NaN or
infinite valid points or normals, clouds that differ in device, dtype, batch or coordinates, normals
of another dtype than their points or with `point_reduction="max"`.

Example:
    >>> import torch
    >>> from sparse3d.pointops import chamfer_distance
    >>> loss, _ = chamfer_distance(torch.zeros(1, 2, 3), torch.ones(1, 1, 3))
    >>> float(loss)
    6.0
"""

from __future__ import annotations

import torch

from sparse3d._check import fail, fail_type, same_device, tensor

from . import _clouds, _inputs
from .knn import search

Loss = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def _one_way(
    x: torch.Tensor,
    y: torch.Tensor,
    x_lengths: torch.Tensor | None,
    y_lengths: torch.Tensor | None,
    normals: tuple[torch.Tensor, torch.Tensor] | None,
    weights: torch.Tensor | None,
    point_reduction: str | None,
    norm: int,
    abs_cosine: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    batch, size, dim = x.shape
    clouds = _clouds.dense(batch, size, y.shape[1], x_lengths, y_lengths)
    distances, indices = search(
        x.reshape(-1, dim), y.reshape(-1, dim), clouds, 1, "l1" if norm == 1 else "squared"
    )
    found = indices.view(batch, size) >= 0
    parts = [torch.where(found, distances.view(batch, size), 0)]
    if normals is not None:
        at = indices.view(batch, size).clamp_min(0)[..., None].expand(batch, size, 3)
        near = normals[1].gather(1, at) if y.shape[1] else torch.zeros_like(normals[0])
        cosine = torch.nn.functional.cosine_similarity(normals[0], near, dim=2, eps=1e-6)
        parts.append(torch.where(found, 1 - (cosine.abs() if abs_cosine else cosine), 0))
    if weights is not None:
        parts = [part * weights[:, None] for part in parts]
    if point_reduction == "max":
        parts = [part.amax(1) if size else part.sum(1) for part in parts]
    elif point_reduction is not None:
        parts = [part.sum(1) for part in parts]
        if point_reduction == "mean":
            counts = torch.full((batch,), size) if x_lengths is None else x_lengths
            parts = [part / counts.clamp_min(1).to(part.device, part.dtype) for part in parts]
    return parts[0], parts[1] if len(parts) == 2 else None


def _both_ways(
    there: tuple[torch.Tensor, torch.Tensor | None],
    back: tuple[torch.Tensor, torch.Tensor | None] | None,
    point_reduction: str | None,
) -> tuple[Loss, Loss | None]:
    """Losses of one direction, or of both put together."""
    if back is None:
        return there
    normals = None if there[1] is None or back[1] is None else (there[1], back[1])
    if point_reduction is None:
        return (there[0], back[0]), normals
    if point_reduction == "max":
        return torch.maximum(there[0], back[0]), None
    return there[0] + back[0], None if normals is None else normals[0] + normals[1]


def _reduce_batch(
    value: Loss | None, weights: torch.Tensor | None, batch_reduction: str | None
) -> Loss | None:
    if value is None or batch_reduction is None or isinstance(value, tuple):
        return value
    total = value.sum()
    if batch_reduction == "sum":
        return total
    if weights is None:
        return total / max(value.shape[0], 1)
    mass = weights.sum()
    return total / torch.where(mass > 0, mass, 1)


def _check_options(
    batch_reduction: str | None, point_reduction: str | None, norm: int, normals: bool
) -> None:
    if norm not in (1, 2):
        fail("norm", "1 (L1) or 2 (squared Euclidean)", norm)
    if batch_reduction not in (None, "mean", "sum"):
        fail("batch_reduction", "'mean', 'sum' or None", repr(batch_reduction))
    if point_reduction not in (None, "mean", "sum", "max"):
        fail("point_reduction", "'mean', 'sum', 'max' or None", repr(point_reduction))
    if point_reduction is None and batch_reduction is not None:
        fail("batch_reduction", "None when point_reduction is None", repr(batch_reduction))
    if point_reduction == "max" and normals:
        fail("x_normals and y_normals", "None when point_reduction is 'max'", "normals")


def _check_normals(
    side: str, normals: torch.Tensor, cloud: torch.Tensor, valid: torch.Tensor | None
) -> torch.Tensor:
    """Normals as they are computed with: finite where valid and zeros behind."""
    name = f"{side}_normals"
    tensor(name, normals)
    same_device(**{name: normals, "the points": cloud})
    if normals.shape != cloud.shape or cloud.shape[2] != 3:
        fail(name, f"of shape {[*cloud.shape[:2], 3]}", list(normals.shape))
    if normals.dtype != cloud.dtype:
        wanted, way_out = f"{cloud.dtype} as {side} is", f"convert with .to({side}.dtype)"
        fail(name, wanted, normals.dtype, way_out)
    normals = _inputs.masked(normals, valid)
    _inputs.finite(name, normals)
    return _inputs.computed(normals)


def _check_weights(weights: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    if weights is None:
        return None
    tensor("weights", weights)
    same_device(weights=weights, x=x)
    if weights.shape != (x.shape[0],):
        fail("weights", f"of shape [{x.shape[0]}], one a cloud", list(weights.shape))
    if weights.is_complex():
        fail_type("weights", "floating or whole numbers", weights.dtype)
    weights = weights.to(x.dtype)
    if _inputs.values_known(weights) and not bool(((weights >= 0) & weights.isfinite()).all()):
        fail("weights", "non-negative and finite", weights.tolist())
    return weights


def chamfer_distance(
    x: torch.Tensor,
    y: torch.Tensor,
    x_lengths: torch.Tensor | None = None,
    y_lengths: torch.Tensor | None = None,
    x_normals: torch.Tensor | None = None,
    y_normals: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    batch_reduction: str | None = "mean",
    point_reduction: str | None = "mean",
    norm: int = 2,
    single_directional: bool = False,
    abs_cosine: bool = True,
) -> tuple[Loss, Loss | None]:
    """Chamfer distance and, where both clouds have normals, the normal loss.

    Args:
        x: (B, P, D) floating, any strides.
        y: (B, Q, D), same dtype and device.
        x_lengths: valid points of each cloud, (B,) integers, None for all.
        y_lengths: as `x_lengths`.
        x_normals: (B, P, 3) and (B, Q, 3), of the points' dtype, finite where valid.
        y_normals: as `x_normals`.
        weights: (B,) non-negative and finite.
        batch_reduction: `mean`, `sum` or None.
        point_reduction: `mean`, `sum`, `max` or None.
        norm: 2 for squared Euclidean, 1 for L1.
        single_directional: x to y only.
        abs_cosine: ignore the orientation of normals.

    Returns:
        The loss (a pair of (B, P) and (B, Q) distances if `point_reduction` is None and both
        directions are taken) and the normal loss of the same form, or None without normals.
    """
    _check_options(
        batch_reduction, point_reduction, norm, x_normals is not None or y_normals is not None
    )
    x, x_valid = _inputs.padded("x", x, "x_lengths", x_lengths)
    y, y_valid = _inputs.padded("y", y, "y_lengths", y_lengths)
    _inputs.alike("x", x, "y", y)
    _inputs.peopled("x", x)
    _inputs.peopled("y", y)
    there = back = None
    if x_normals is not None and y_normals is not None:
        x_normals = _check_normals("x", x_normals, x, x_valid)
        y_normals = _check_normals("y", y_normals, y, y_valid)
        there, back = (x_normals, y_normals), (y_normals, x_normals)
    x, y = _inputs.computed(x), _inputs.computed(y)
    weights = _check_weights(weights, x)
    forward = _one_way(x, y, x_valid, y_valid, there, weights, point_reduction, norm, abs_cosine)
    loss, loss_normals = _both_ways(
        forward,
        None
        if single_directional
        else _one_way(y, x, y_valid, x_valid, back, weights, point_reduction, norm, abs_cosine),
        point_reduction,
    )
    reduced = _reduce_batch(loss, weights, batch_reduction)
    return loss if reduced is None else reduced, _reduce_batch(
        loss_normals, weights, batch_reduction
    )
