"""The thread pool: forked workers, several Python threads at once, torch's thread count."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from sparse3d import _registry
from sparse3d.cpu import _library
from sparse3d.ops import conv as V
from sparse3d.ops import coordinates as C
from sparse3d.ops import kernel_map as M
from sparse3d.ops import voxelize as X


def work(seed):
    """Voxelize points and convolve: everything that takes the pool."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(20_000, 3, generator=generator) * 20
    with _registry.force("cpu"), _registry.strict():
        cells = torch.nn.functional.pad(X.quantize(points, 0.5), (1, 0))
        voxels = X.voxelize(points, cells)
        coords = voxels.indices
        table = C.coordinate_table(coords)
        pairs = M.kernel_map_submanifold(coords, table, [3] * 3, [1] * 3)
        weight = torch.randn(16, 27, voxels.features.shape[1], generator=generator)
        rows = len(coords)
        return V.conv_forward(voxels.features, weight, *pairs, [], [], rows, 1)


def unique_on_three_threads(seed):
    generator = torch.Generator().manual_seed(seed)
    coords = torch.randint(0, 40, (30_000, 4), generator=generator).int()
    first, inverse = torch.empty((2, len(coords)), dtype=torch.int64).unbind()
    count = ctypes.c_int64()
    address = _library.address
    rest = (len(coords), 3, address(first), address(inverse), ctypes.byref(count))
    _library.call("s3d_coordinate_unique", 3, address(coords), *rest)
    return first[: count.value].clone()


class Scenes(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        # DataLoader leaves torch one thread (OpenMP does not survive a fork); the pool gets three.
        return work(index), unique_on_three_threads(index)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:This process")  # fork with threads alive: what is tested
def test_workers_forked_after_the_parent_used_the_pool(two_threads):
    wanted = [(work(index), unique_on_three_threads(index)) for index in range(6)]
    loader = DataLoader(
        Scenes(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=120
    )
    for _ in range(2):
        for mine, theirs in zip(loader, wanted, strict=True):
            assert torch.equal(mine[0], theirs[0])
            assert torch.equal(mine[1], theirs[1])
    assert torch.equal(work(0), wanted[0][0])


def test_several_python_threads(two_threads):
    wanted = [work(index) for index in range(4)]
    found = [None] * 4

    def run(index):
        torch.set_num_threads(index + 1)
        found[index] = work(index)

    users = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine, theirs)
