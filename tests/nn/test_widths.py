"""A container says which of its children rows do not fit; no kernel sees them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

INDICES = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]], dtype=torch.int32)


def cloud() -> SparseConvTensor:
    return SparseConvTensor(torch.rand(2, 4), INDICES, [4, 4, 4], 1)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [nn.BatchNorm1d, spnn.SparseBatchNorm, nn.Linear])
def test_the_child_is_named(kind: type[nn.Module], training: bool, grad: bool) -> None:
    child = nn.Linear(8, 3) if kind is nn.Linear else kind(8)
    net = spnn.SparseSequential(spnn.SubMConv3d(4, 7, 3), child, nn.ReLU()).train(training)
    words = rf"child 1 \({kind.__name__}\): input features must be of 8 channels, got 7 channels"
    with torch.set_grad_enabled(grad), pytest.raises(ValueError, match=words):
        net(cloud())


def test_lazy_children_take_any_width() -> None:
    net = spnn.SparseSequential(spnn.SubMConv3d(4, 7, 3), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
    assert net(cloud()).features.shape == (2, 3)
