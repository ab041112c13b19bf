"""The same bytes from every layer, forward and gradients, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from contract.engine import same_bytes
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry


def _net() -> nn.Module:
    """Every kind of layer once; widths that are no multiple of anything."""
    return spnn.SparseSequential(
        spnn.SubMConv3d(5, 21, 3, indice_key="a"),
        spnn.SparseBatchNorm(21),
        spnn.SparseReLU(),
        spnn.SparseConv3d(21, 34, 3, 2, 1, indice_key="d"),
        spnn.SparseBatchNorm(34),
        spnn.SubMConv3d(34, 34, 3, groups=2),
        spnn.SparseMaxPool3d(3, 1, 1, indice_key="m"),
        spnn.SubMConv3d(34, 34, 1),
        spnn.SparseInverseConv3d(34, 17, 3, indice_key="m"),
        spnn.SparseInverseConv3d(17, 13, 3, indice_key="d"),
        spnn.SparseConvTranspose3d(13, 7, 2, 2),
        spnn.SparseAvgPool3d(2, 2),
        spnn.SubMConv3d(7, 7, 3, groups=7),
    )


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_training_step(name: str, threads: Callable[[int], None]) -> None:
    if name != "reference" and (reason := _registry.load(name)) is not None:
        pytest.skip(f"{name}: {reason}")
    rng = np.random.default_rng(0)
    cells = np.stack(np.unravel_index(rng.permutation(2 * 12**3)[:400], (2, 12, 12, 12)), 1)
    indices = torch.from_numpy(cells.astype(np.int32))
    features = torch.from_numpy(rng.standard_normal((400, 5)).astype(np.float32))
    torch.manual_seed(1)
    net = _net()
    state = {k: v.clone() for k, v in net.state_dict().items()}

    def step() -> list[torch.Tensor]:
        net.load_state_dict(state)
        net.zero_grad()
        x = features.clone().requires_grad_()
        out = net(SparseConvTensor(x, indices.clone(), [12, 12, 12], 2)).features
        ramp = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
        torch.autograd.backward(out, ramp)
        found = [out.detach(), x.grad, *(p.grad for p in net.parameters()), *net.buffers()]
        return [value.clone() for value in found if value is not None]

    with _registry.force(name):
        threads(1)
        first = step()
        assert len(first) == 2 + len(list(net.parameters())) + len(list(net.buffers()))
        for count in (1, 2, 3, 8):
            threads(count)
            assert same_bytes(first, step()), f"{count} threads"
