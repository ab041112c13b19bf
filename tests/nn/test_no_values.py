"""Tensors on `meta` have no values: what reads them says so, in one line of the house form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sparse3d
import sparse3d.nn as spnn
from sparse3d.pointops import flat

FEATURES = torch.rand(5, 4, device="meta")
INDICES = torch.zeros(5, 4, dtype=torch.int32, device="meta")


def unchecked() -> sparse3d.SparseConvTensor:
    return sparse3d.SparseConvTensor(FEATURES, INDICES, [4, 4, 4], 1, check=False)


CALLS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: sparse3d.SparseConvTensor(FEATURES, INDICES, [4, 4, 4], 1),
    "int64": lambda: sparse3d.SparseConvTensor(FEATURES, INDICES.long(), [4, 4, 4], 1),
    "submanifold": lambda: spnn.SubMConv3d(4, 4, 3).to("meta")(unchecked()),
    "strided": lambda: spnn.SparseConv3d(4, 4, 3, 2).to("meta")(unchecked()),
    "pool": lambda: spnn.SparseMaxPool3d(2, 2)(unchecked()),
    "dense": lambda: unchecked().dense(),
    "coalesce": lambda: sparse3d.coalesce(unchecked()),
    "quantize": lambda: sparse3d.quantize(FEATURES[:, :3], 0.1),
    "voxelize": lambda: sparse3d.voxelize(FEATURES, INDICES),
    "devoxelize": lambda: sparse3d.devoxelize(FEATURES, coords=INDICES, points=FEATURES),
    "group_points": lambda: sparse3d.group_points(FEATURES, [0.1] * 3, [0.0] * 3 + [1.0] * 3, 9, 5),
    "radius": lambda: flat.radius(FEATURES, FEATURES, 1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_values_are_no_data(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"must be a tensor with values, got one on meta"
    ) as caught:
        CALLS[name]()
    assert "\n" not in str(caught.value)
