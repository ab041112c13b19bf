"""Two processes train MinkUNet as one process does on both their batches: norms over both on GPUs,
by NCCL on two of them and by gloo on one that they share (NCCL wants one each); by gloo on the CPU,
where torch has no such norm and statistics stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor
from sparse3d.models.minkunet import MinkUNet

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no processes")

STEPS, EXTENT, CLASSES, RANKS = 4, 12, 5, 2
ROWS = (170, 90)
"""Of each process: sums over rows are not means of means."""


def network(device: str) -> nn.Module:
    torch.manual_seed(0)
    net = MinkUNet(4, CLASSES, (8, 8, 8, 16, 16, 16, 8, 8, 8), (1,) * 4, (1,) * 4)
    fit_norms(net, spread=device.startswith("cuda"))
    return net.to(device)


def fit_norms(module: nn.Module, spread: bool) -> None:
    for name, child in module.named_children():
        if not isinstance(child, spnn.SparseBatchNorm):
            fit_norms(child, spread)
        elif spread:
            setattr(module, name, spnn.SparseSyncBatchNorm(child.num_features))
        else:
            child.eval()


def sample(rank: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, sites of batch 0, labels."""
    draw = torch.Generator().manual_seed(rank)
    cells = torch.randperm(EXTENT**3, generator=draw)[: ROWS[rank]]
    places = [cells // EXTENT**axis % EXTENT for axis in range(3)]
    indices = torch.stack([torch.zeros_like(cells), *places], 1).int()
    features = torch.randn(ROWS[rank], 4, generator=draw)
    labels = torch.randint(0, CLASSES, (ROWS[rank],), generator=draw)
    return features.to(device), indices.to(device), labels.to(device)


def losses(net: nn.Module, batches: list, device: str, share: float) -> list[float]:
    """Sum of the rows' losses over all rows of both processes, a number a step."""
    optimiser = torch.optim.SGD(net.parameters(), 0.5)
    found = []
    parts = [sample(rank, device) for rank in batches]
    for _ in range(STEPS):
        indices = torch.cat(
            [p[1] + torch.tensor([i, 0, 0, 0]).to(p[1]) for i, p in enumerate(parts)]
        )
        features, labels = (torch.cat([p[k] for p in parts]) for k in (0, 2))
        x = SparseConvTensor(features, indices, [EXTENT] * 3, len(parts))
        loss = nn.functional.cross_entropy(net(x), labels, reduction="sum") / sum(ROWS)
        optimiser.zero_grad()
        (loss * share).backward()
        optimiser.step()
        found.append(float(loss.detach()))
    return found


def worker(rank: int, folder: str, gpus: int) -> None:
    place = rank % gpus if gpus else 0
    device = f"cuda:{place}" if gpus else "cpu"
    torch.set_num_threads(1)
    if gpus:
        torch.cuda.set_device(place)
    dist.init_process_group(
        "nccl" if gpus == RANKS else "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
    )
    ids = [place] if gpus else None
    net = nn.parallel.DistributedDataParallel(network(device), device_ids=ids)
    # DistributedDataParallel divides the sum of gradients by the number of processes.
    found = losses(net, [rank], device, share=RANKS)
    state = {name: value.cpu() for name, value in net.module.state_dict().items()}
    torch.save((found, state), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("gpus", [0, 1, RANKS], ids=["cpu", "one GPU", "two GPUs"])
def test_two_processes_train_as_one(tmp_path: Path, gpus: int) -> None:
    if gpus > torch.cuda.device_count():
        pytest.skip(f"needs {gpus} GPUs, found {torch.cuda.device_count()}")
    if gpus == RANKS and not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    device = "cuda" if gpus else "cpu"
    mp.spawn(worker, (str(tmp_path), gpus), nprocs=RANKS)
    (first, mine), (second, theirs) = (torch.load(tmp_path / f"{r}.pt") for r in range(RANKS))
    net = network(device)
    alone = losses(net, list(range(RANKS)), device, share=1)
    together = [a + b for a, b in zip(first, second, strict=True)]
    assert torch.allclose(torch.tensor(together), torch.tensor(alone), rtol=1e-4)
    assert alone[-1] < alone[0]
    for name, value in net.state_dict().items():
        assert torch.allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-5), name
        assert torch.allclose(mine[name], value.cpu(), rtol=1e-3, atol=1e-4), name
