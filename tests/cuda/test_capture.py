"""What captured networks leave behind on an NVIDIA GPU."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("gpu")]


def scene() -> SparseConvTensor:
    cells = torch.cartesian_prod(*[torch.arange(12)] * 3)[::3]
    indices = torch.cat([cells.new_zeros(len(cells), 1), cells], 1).int().cuda()
    return SparseConvTensor(torch.randn(len(cells), 16, device="cuda"), indices, [12] * 3, 1)


def held() -> int:
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


@pytest.mark.parametrize("train", [False, True])
def test_graphs_that_are_gone_leave_no_memory(train: bool) -> None:
    net = spnn.SparseSequential(spnn.SubMConv3d(16, 32, 3), nn.Linear(32, 32)).cuda()
    net.train(train)

    def step(x: SparseConvTensor) -> torch.Tensor:
        made = net(x).features.square().mean()
        if train:
            net.zero_grad()
            made.backward()
        return made.detach()

    def capture_and_forget() -> float:
        ready = spnn.capture(step, scene(), train=train)
        return float(ready(scene()))

    capture_and_forget()
    net.zero_grad()
    before = held()
    for _ in range(3):
        capture_and_forget()
    net.zero_grad()
    assert held() <= before


def test_graphs_that_live_have_streams_of_their_own() -> None:
    net = spnn.SubMConv3d(16, 32, 3).cuda().eval()
    first, second = (spnn.capture(net, scene()) for _ in range(2))
    assert first.stream != second.stream
    gone = first.stream
    del first
    gc.collect()
    third = spnn.capture(net, scene())
    assert third.stream == gone
    x = scene()
    assert torch.equal(second(x).features, third(x).features)
