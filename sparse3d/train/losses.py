"""Losses of point-wise segmentation."""

from __future__ import annotations

import torch
from torch.nn import functional

from sparse3d.data.batch import IGNORE
from sparse3d.ops.order import count_ids, order_keys, running_sum

__all__ = ["lovasz_softmax", "segmentation_loss"]


def lovasz_softmax(probability: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A convex surrogate of 1 - mean IoU over the classes that occur (Berman et al., CVPR 2018).

    For each class, errors are sorted from the largest down; each weighs as much as 1 - IoU grows
    when it joins the wrong points.

    Args:
        probability: floating ``[V, K]``, rows that sum to 1.
        target: int64 ``[V]``, each in [0, K), or `IGNORE`, which does not count.
    """
    counted = target != IGNORE
    losses = []
    present = count_ids(target[counted], probability.shape[1]).tolist()
    for kind in (number for number, count in enumerate(present) if count):
        own = target == kind
        error = (own.to(probability.dtype) - probability[:, kind]).abs()
        # Rows that do not count are without error, hence last: nothing is gathered, whose gradient
        # would scatter.
        error = error.masked_fill(~counted, 0)
        losses.append((error * _steps(error.detach(), own)).sum())
    return torch.stack(losses).mean() if losses else probability.sum() * 0


def _steps(error: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """How much 1 - IoU of a class grows when a row joins the wrong ones, those of larger error and
    earlier ones of equal error being wrong already.

    Args:
        error: floating ``[V]``, none negative.
        own: bool ``[V]``, rows of the class.
    """
    wide = error if error.dtype == torch.float64 else error.float()
    # Bits of numbers that are not negative are in their order.
    order = order_keys(-wide.view(torch.int64 if wide.dtype == torch.float64 else torch.int32))
    # Whole numbers: their running sums are exact, so equal on every device.
    hits = running_sum(own[order].long())
    taken = torch.arange(1, len(hits) + 1, device=hits.device)
    missing, union = hits[-1] - hits, hits[-1] + taken - hits
    jaccard = 1 - missing.to(error.dtype) / union.to(error.dtype)
    steps = torch.empty_like(error)
    steps[order] = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
    return steps


def segmentation_loss(
    scores: torch.Tensor,
    target: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    smoothing: float = 0.0,
    lovasz: float = 0.0,
    total: torch.Tensor | None = None,
) -> torch.Tensor:
    """Weighted cross entropy with label smoothing, and Lovasz softmax beside it.

    Args:
        scores: floating ``[V, K]``.
        target: int64 ``[V]``; `IGNORE` does not count.
        weight: ``[K]``, of the classes in the cross entropy.
        smoothing: Share of the target that is spread over all classes.
        lovasz: Weight of the Lovasz softmax.
        total: What the cross entropy is divided by; the sum of the weights of these targets if not
            given. Processes that share a batch give the mean of theirs.

    Returns:
        A scalar; 0 with zero gradients where nothing counts.
    """
    scores = scores.float()
    entropy = functional.cross_entropy(
        scores, target, weight, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
    )
    share = weight_of(target, weight) if total is None else total
    loss: torch.Tensor = entropy / share.clamp(min=1e-12)
    if lovasz:
        loss = loss + lovasz * lovasz_softmax(scores.softmax(1), target)
    return loss


def weight_of(target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Sum of the class weights of the targets that count."""
    target = target[target != IGNORE]
    if weight is None:
        return target.new_tensor(float(len(target)), dtype=torch.float32)
    return weight[target].sum()
