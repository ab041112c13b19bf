"""Several Python threads at once: the bytes of one thread alone, with and without gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry, add, devoxelize, quantize, voxelize
from sparse3d.pointops import ball_query, chamfer_distance, furthest_point_sample, knn

THREADS = 4
ROUNDS = 2
Tensors = list[torch.Tensor]


def scene(seed: int, channels: int = 6, side: int = 10) -> SparseConvTensor:
    rng = np.random.default_rng(seed)
    cells = np.stack(np.unravel_index(rng.permutation(2 * side**3)[:250], (2, *[side] * 3)), 1)
    features = torch.from_numpy(rng.standard_normal((250, channels)).astype(np.float32))
    return SparseConvTensor(features, torch.from_numpy(cells.astype(np.int32)), [side] * 3, 2)


def network() -> nn.Module:
    torch.manual_seed(0)
    return spnn.SparseSequential(
        spnn.SubMConv3d(6, 16, 3, indice_key="s"),
        spnn.SparseReLU(),
        spnn.SparseConv3d(16, 24, 3, 2, 1, indice_key="d"),
        spnn.SparseMaxPool3d(2, 2, indice_key="p"),
        spnn.SparseInverseConv3d(24, 16, 2, "p"),
        spnn.SparseInverseConv3d(16, 8, 3, "d"),
        spnn.SparseConvTranspose3d(8, 4, 2, 2),
        spnn.SparseAvgPool3d(2, 2),
    )


NET = network()
SHARED = scene(99)


def _own_network(seed: int) -> Tensors:
    """Training on a scene of one's own; the parameters are shared, the gradients are returned."""
    x = scene(seed)
    leaf = x.features.requires_grad_()
    out = NET(x)
    wanted = [leaf, *NET.parameters()]
    return [out.features, out.indices, *torch.autograd.grad(out.features.square().sum(), wanted)]


def _inference(seed: int) -> Tensors:
    with torch.no_grad():
        out = NET(scene(seed))
    return [out.features, out.indices, out.dense()]


def _one_tensor(seed: int) -> Tensors:
    """All threads build maps and plans on the same sites at the same time."""
    fresh = SHARED.shadow_copy()
    small = spnn.SubMConv3d(6, 4, 3, dilation=1 + seed % 3, bias=False)
    small.weight.data.fill_(0.5)
    with torch.no_grad():
        return [small(fresh).features, NET(fresh).features, SHARED.coordinates.table()]


def _voxels(seed: int) -> Tensors:
    points = torch.rand(5_000, 3, generator=torch.Generator().manual_seed(seed)) * 20
    cells = torch.nn.functional.pad(quantize(points, 0.5), (1, 0))
    made = voxelize(points, cells)
    most = voxelize(points, cells, "max")
    return [*made, most.features, devoxelize(made.features, made.inverse)]


def _sums(seed: int) -> Tensors:
    x, y = scene(seed), scene(seed + 1)
    total = add(x, y)
    mean, most = spnn.SparseGlobalAvgPool()(total), spnn.SparseGlobalMaxPool()(total)
    return [total.features, total.indices, mean, most, x.dense(), total.coalesce().features]


def _points(seed: int) -> Tensors:
    cloud = torch.rand(2, 150, 3, generator=torch.Generator().manual_seed(seed))
    leaf = cloud.clone().requires_grad_()
    loss, _ = chamfer_distance(leaf, cloud.flip(1) + 0.01)
    assert isinstance(loss, torch.Tensor)
    (gradient,) = torch.autograd.grad(loss, leaf)
    taken = furthest_point_sample(cloud, 64)
    return [*knn(cloud, cloud, 8), *ball_query(cloud, cloud, 0.1, 8), taken, gradient]


WORK: dict[str, Callable[[int], Tensors]] = {
    "training": _own_network,
    "inference": _inference,
    "one tensor": _one_tensor,
    "voxels": _voxels,
    "sums": _sums,
    "points": _points,
}


def _bytes(tensors: Tensors) -> list[bytes]:
    return [t.detach().contiguous().numpy().tobytes() for t in tensors]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_threads_together_and_alone(name: str, mixed: bool, threads: Callable[[int], None]) -> None:
    """Each kind of work on all threads, then all kinds at once."""
    if name != "reference" and (reason := _registry.load(name)) is not None:
        pytest.skip(f"{name}: {reason}")
    threads(1 if name == "reference" else 2)
    kinds = list(WORK)

    def job(kind: str, seed: int) -> list[bytes]:
        with _registry.force(name):
            return _bytes(WORK[kind](seed))

    alike = ["training", "one tensor"] if name == "reference" else kinds  # it is slow
    plans = [[kinds[i % len(kinds)] for i in range(len(kinds))]] if mixed else []
    plans += [] if mixed else [[kind] * THREADS for kind in alike]
    for plan in plans:
        alone = [job(kind, index) for index, kind in enumerate(plan)]
        SHARED.indices = SHARED.indices.clone()  # forget the maps: the threads build them
        found: list[list[list[bytes]]] = [[] for _ in plan]
        start = threading.Barrier(len(plan))

        def run(
            index: int, kind: str, found: list[list[list[bytes]]], start: threading.Barrier
        ) -> None:
            start.wait(60)
            for _ in range(ROUNDS):
                found[index].append(job(kind, index))

        users = [
            threading.Thread(target=run, args=(index, kind, found, start))
            for index, kind in enumerate(plan)
        ]
        for user in users:
            user.start()
        for user in users:
            user.join(120)
        for index, kind in enumerate(plan):
            assert len(found[index]) == ROUNDS, f"{kind} in thread {index} ended early"
            assert all(result == alone[index] for result in found[index]), kind
