"""Every Metal kernel at the sizes where its threadgroups, chunks and tiles begin and end.

The calls are those of the case table. Convolutions and maps have a test of their own at every size,
in test_kernels.py. Every launch is checked for races and runs under three schedules.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from metal_emu import fronts, installed
from tolerance import assert_close, assert_same

from sparse3d import _registry
from sparse3d._cases.samples import OPAQUE, Size, all_ops, samples

QUERIES, GROUP, CHUNK, BLOCK = 4, 256, 512, 1024
FEW = (0, 1, 31, 32, 33)
OWN: dict[str, tuple[int, ...]] = {
    "coordinate_table": (GROUP,),
    "coordinate_lookup": (GROUP,),
    "coordinate_unique": (GROUP, BLOCK),  # with a third of the rows again
    "conv_plan": (64, GROUP),
    "pool_sum": (GROUP,),
    "pool_max": (GROUP,),
    "pool_max_grad": (GROUP,),
    "trilinear_map": (GROUP,),
    "interpolate": (GROUP,),
    "interpolate_grad": (64, GROUP),  # 8 corners each: one chunk, and more groups
    "segment_sum": (GROUP, CHUNK),
    "segment_max": (GROUP, CHUNK),
    "dense_scatter": (GROUP,),
    "dense_gather": (GROUP,),
    "batch_norm_train": (CHUNK,),
    "batch_norm_grad": (CHUNK,),
    "batch_norm_relu_train": (CHUNK,),
    "batch_norm_relu_again": (CHUNK,),
    "batch_norm_relu_grad": (CHUNK,),
    "linear_rows": (64,),
    "linear_weight_grad": (CHUNK,),
    "key_order": (GROUP, CHUNK),
    "id_counts": (GROUP, CHUNK),
    "running_sums": (GROUP, BLOCK),
    "fps_sample": (GROUP, BLOCK),
    "knn_search": (QUERIES,),
    "ball_search": (QUERIES,),
    "spatial_index": (GROUP, BLOCK),
    "gather_columns": (GROUP,),
    "interpolate_columns": (GROUP,),
}
"""Rows that a threadgroup of the op takes: of a launch with a thread a row, of a block of the scan,
of a chunk of a sum, of a tile, or of the simdgroups that take a query each."""

ELSEWHERE = {
    *("conv_forward", "conv_input_grad", "conv_weight_grad", "conv_fused"),
    *("kernel_map_submanifold", "kernel_map_neighbours", "kernel_map_given"),
    *("kernel_map_footprint", "kernel_map_floor"),
}
WIDTHS = (1, 31, 32, 33, 255, 256, 257)
BY_CHANNEL = (
    *("pool_sum", "pool_max", "pool_max_grad", "interpolate", "interpolate_grad"),
    *("segment_sum", "segment_max", "dense_scatter", "dense_gather", "batch_norm_train"),
    *("batch_norm_grad", "batch_norm_relu_train", "batch_norm_relu_again", "batch_norm_relu_grad"),
)
"""Ops whose threads lie along the channels, up to 256 of them in a group."""


@pytest.fixture(scope="module", params=fronts())
def _metal(request: pytest.FixtureRequest) -> Any:
    with installed(request.param, schedules=3, meter=False):
        yield


def _agree(name: str, size: Size) -> None:
    op = all_ops()[name]
    with _registry.force("reference"):
        expected = [op(*args) for args in samples(op, size)]
    with _registry.force("metal"), _registry.strict():
        results = [op(*args) for args in samples(op, size)]
    for ours, theirs in zip(results, expected, strict=True):
        pairs = zip(_listed(ours), _listed(theirs), strict=True)
        for left, right in () if name in OPAQUE else pairs:
            if left.is_floating_point():
                far = {"posinf": 1e9}  # where a cloud has fewer rows than neighbours are asked for
                assert_close(left.nan_to_num(**far), right.nan_to_num(**far), torch.float32)
            else:
                assert_same(left, right, name)


def _listed(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _sizes(name: str) -> list[int]:
    edges = [own + step for own in OWN[name] for step in (-1, 0, 1)]
    return sorted({*FEW, *edges, 2 * OWN[name][0] + 1})


def test_every_op_with_a_kernel_is_here() -> None:
    with installed(check=False):
        table = {name for name, row in _registry.backends().items() if row["metal"] == "kernel"}
    assert table == OWN.keys() | ELSEWHERE


@pytest.mark.usefixtures("_metal")
@pytest.mark.parametrize(("name", "rows"), [(n, rows) for n in OWN for rows in _sizes(n)])
def test_rows(name: str, rows: int) -> None:
    _agree(name, Size(f"{rows} rows", rows, 3, 2))


@pytest.mark.parametrize("name", BY_CHANNEL)
def test_channels(name: str) -> None:
    with installed(fronts()[-1], schedules=3, meter=False):
        for channels in WIDTHS:
            _agree(name, Size(f"{channels} channels", 3, channels, 2))
