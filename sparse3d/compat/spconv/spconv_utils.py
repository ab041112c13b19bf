"""`spconv.spconv_utils`: what 1.x's compiled half does with points and boxes, on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...nn.utils import PointToVoxel, slot_means
from ...pointops.blocks import block_bounds, blocks_of, spans_around
from ...pointops.boxes import (
    intersection_area,
    overlap_over_union,
    suppress_boxes,
    suppress_quadrilaterals,
)

__all__ = [
    "non_max_suppression",
    "non_max_suppression_cpu",
    "points_to_voxel_3d_np",
    "points_to_voxel_3d_np_mean",
    "points_to_voxel_3d_with_filtering",
    "rbbox_intersection",
    "rbbox_iou",
    "rotate_non_max_suppression_cpu",
]

Array = npt.NDArray[Any]
HALF = "even"  # numpy rounds 1.x's grids


def _used(slots: int, counts: Array) -> Array:
    """Which slots of each voxel have a point, bool [M, slots]."""
    return np.arange(slots) < counts[:, None]


def points_to_voxel_3d_np(
    points: Array,
    voxels: Array,
    voxel_point_mask: Array,
    coors: Array,
    num_points_per_voxel: Array,
    coor_to_voxelidx: Array | None,
    voxel_size: Sequence[float],
    coors_range: Sequence[float],
    max_points: int,
    max_voxels: int,
) -> int:
    """Write voxels into arrays of M = max_voxels rows, as 1.2 does, and count them.

    Args:
        points: [N, F], x, y, z first.
        voxels: [M, P, F]; slots without a point stay as they are, as unused rows do everywhere.
        voxel_point_mask: [M, P], 1 where a slot has a point.
        coors: [M, 3] z, y, x.
        num_points_per_voxel: [M].
        coor_to_voxelidx: accepted and left alone; 1.x's scratch.
        voxel_size: x, y, z.
        coors_range: lower bounds, then upper bounds.
        max_points: P.
        max_voxels: M.
    """
    numbers = [float(v) for v in voxel_size], [float(v) for v in coors_range]
    generator = PointToVoxel(*numbers, points.shape[1], max_voxels, max_points, half=HALF)
    made = generator(torch.from_numpy(np.ascontiguousarray(points)))
    found, indices, counts = (part.numpy() for part in made)
    number = len(counts)
    used = _used(max_points, counts)
    voxels[:number, :max_points][used] = found[used]
    voxel_point_mask[:number, :max_points][used] = 1
    coors[:number], num_points_per_voxel[:number] = indices, counts
    return number


def points_to_voxel_3d_np_mean(
    points: Array,
    voxels: Array,
    voxel_point_mask: Array,
    means: Array,
    coors: Array,
    num_points_per_voxel: Array,
    coor_to_voxelidx: Array | None,
    voxel_size: Sequence[float],
    coors_range: Sequence[float],
    max_points: int,
    max_voxels: int,
) -> int:
    """The same; slots without a point get the mean of their voxel's, `means` [M, F] too."""
    arrays = voxels, voxel_point_mask, coors, num_points_per_voxel, coor_to_voxelidx
    number = points_to_voxel_3d_np(points, *arrays, voxel_size, coors_range, max_points, max_voxels)
    counts, slots = num_points_per_voxel[:number], voxels[:number, :max_points]
    means[:number] = slot_means(torch.from_numpy(slots), torch.from_numpy(counts)).numpy()
    slots[...] = np.where(_used(max_points, counts)[..., None], slots, means[:number, None])
    return number


def points_to_voxel_3d_with_filtering(
    points: Array,
    voxels: Array,
    voxel_point_mask: Array,
    voxel_mask: Array,
    mins: Array,
    maxs: Array,
    coors: Array,
    num_points_per_voxel: Array,
    coor_to_voxelidx: Array | None,
    voxel_size: Sequence[float],
    coors_range: Sequence[float],
    max_points: int,
    max_voxels: int,
    block_factor: int,
    block_size: int,
    height_threshold: float,
    height_high_threshold: float,
) -> int:
    """The same, and which voxels stand where heights differ neither too little nor too much.

    Args:
        points: as of `points_to_voxel_3d_np`, like all that is not named here.
        voxels: see `points`.
        voxel_point_mask: see `points`.
        voxel_mask: [M], 1 where the span of z in the blocks around is between the thresholds.
        mins: [Y, X] lowest z of a block, taken into account and lowered.
        maxs: [Y, X] highest z of a block, likewise.
        coors: see `points`.
        num_points_per_voxel: see `points`.
        coor_to_voxelidx: see `points`.
        voxel_size: see `points`.
        coors_range: see `points`.
        max_points: see `points`.
        max_voxels: see `points`.
        block_factor: voxels of a block along y and x.
        block_size: blocks of a window along y and x, around the voxel's.
        height_threshold: the span must be above.
        height_high_threshold: the span must be below.
    """
    arrays = voxels, voxel_point_mask, coors, num_points_per_voxel, coor_to_voxelidx
    number = points_to_voxel_3d_np(points, *arrays, voxel_size, coors_range, max_points, max_voxels)
    blocks = blocks_of(torch.from_numpy(coors[:number, 1:]), block_factor)
    rows, slots = np.nonzero(_used(max_points, num_points_per_voxel[:number]))
    heights, bounds = torch.from_numpy(voxels[rows, slots, 2]), (mins, maxs)
    found = block_bounds(blocks[torch.from_numpy(rows)], heights, *map(torch.from_numpy, bounds))
    mins[...], maxs[...] = (bound.numpy() for bound in found)
    span = spans_around(blocks, *found, block_size).numpy()
    voxel_mask[:number] = (span > height_threshold) & (span < height_high_threshold)
    return number


def _corners(boxes: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(boxes, np.float64))


def _pairwise(share: Callable[..., torch.Tensor], words: str) -> Callable[..., Array]:
    """A function of every pair of rotated boxes."""

    def pairs(
        box_corners: Array, qbox_corners: Array, standup_iou: Array, standup_thresh: float
    ) -> Array:
        overlap = np.zeros((len(box_corners), len(qbox_corners)), box_corners.dtype)
        rows, columns = np.nonzero(np.asarray(standup_iou) > standup_thresh)
        found = share(_corners(box_corners[rows]), _corners(qbox_corners[columns]))
        overlap[rows, columns] = found.numpy()
        return overlap

    pairs.__doc__ = f"""{words} of rotated boxes [N, 4, 2] and [K, 4, 2], seen from above: [N, K].

    Only pairs whose upright boxes overlap by more than `standup_thresh` ([N, K]) are computed;
    others are 0.
    """
    return pairs


rbbox_iou = _pairwise(overlap_over_union, "Overlap over union")
rbbox_intersection = _pairwise(intersection_area, "Shared area")


def rbbox_iou_loss(box_corners: Array, qbox_corners: Array) -> Array:
    """Overlap over union of box n with box n: [N]."""
    found = overlap_over_union(_corners(box_corners), _corners(qbox_corners))
    return found.numpy().astype(box_corners.dtype)


def non_max_suppression_cpu(
    boxes: Array, order: Array, thresh: float, eps: float = 0.0
) -> list[int]:
    """Boxes (x1, y1, x2, y2) that no box before them in `order` overlaps by `thresh` or more."""
    places = torch.from_numpy(np.asarray(order).astype(np.int64))
    found: list[int] = suppress_boxes(torch.from_numpy(boxes), places, thresh, eps).tolist()
    return found


def rotate_non_max_suppression_cpu(
    boxes: Array, order: Array, standup_iou: Array, thresh: float
) -> list[int]:
    """The same for rotated boxes [N, 4, 2]; pairs whose `standup_iou` is 0 are left alone."""
    places = torch.from_numpy(np.asarray(order).astype(np.int64))
    near = torch.from_numpy(np.asarray(standup_iou) > 0)
    found: list[int] = suppress_quadrilaterals(_corners(boxes), places, thresh, near).tolist()
    return found


def non_max_suppression(
    boxes: Array, keep_out: Array, nms_overlap_thresh: float, device_id: int = 0
) -> int:
    """What 1.x does on a GPU, on the CPU: boxes whose sides count a pixel more.

    Args:
        boxes: [N, 4 or more] (x1, y1, x2, y2, ...), the best first.
        keep_out: [N], gets the rows of boxes that no kept one overlaps by more than the threshold.
        nms_overlap_thresh: overlap over union.
        device_id: accepted and ignored.

    Returns:
        How many are kept.
    """
    above = float(np.nextafter(boxes.dtype.type(nms_overlap_thresh), boxes.dtype.type(np.inf)))
    rows = torch.arange(len(boxes))
    kept = suppress_boxes(torch.from_numpy(np.ascontiguousarray(boxes)), rows, above, 1.0)
    keep_out[: len(kept)] = kept.numpy()
    return len(kept)
