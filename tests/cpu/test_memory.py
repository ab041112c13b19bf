"""Large outputs lie over memory that comes back when they die."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest
import torch

from sparse3d import _registry
from sparse3d.cpu import _memory
from sparse3d.cpu._memory import LEAST_BYTES, Memory
from sparse3d.ops import conv as V

ROWS = LEAST_BYTES // 128  # 64 channels of float32: twice the least


def test_a_dead_tensor_gives_its_block_back():
    memory = Memory(8 * LEAST_BYTES)
    other = memory.empty((2 * ROWS, 64), torch.float32)
    first = memory.empty((ROWS, 64), torch.float32)
    assert first.is_contiguous()
    assert not first._is_view()
    place, part = first.data_ptr(), first[3:5]
    del first
    assert memory.kept() == 0  # a view is alive
    del part
    assert memory.kept() >= LEAST_BYTES
    nearly = memory.empty((ROWS - ROWS // 50, 64), torch.float32)
    assert nearly.data_ptr() == place
    assert memory.kept() == 0
    assert other.data_ptr() != place


def test_live_tensors_never_share_memory():
    memory = Memory(8 * LEAST_BYTES)
    held = [memory.empty((ROWS, 64), torch.float32).fill_(i) for i in range(3)]
    del held[1]
    held.append(memory.empty((ROWS, 64), torch.float32).fill_(7))
    assert [float(v.mean()) for v in held] == [0, 2, 7]


def _offered() -> int:
    """Bytes of this process that the system may take back without asking."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("LazyFree:"))


@pytest.mark.parametrize("limit", [4, 1000])
def test_what_is_kept_was_once_in_use(limit: int) -> None:
    memory = Memory(limit * LEAST_BYTES)
    held = [memory.empty((ROWS + 512 * i, 64), torch.float32).fill_(i) for i in range(8)]
    used = sum(v.nbytes for v in held)
    again = held.pop()
    held.clear()
    assert 0 < memory.kept() <= 1.2 * used - again.nbytes
    held = [memory.empty((ROWS + 512 * i, 64), torch.float32).fill_(i) for i in range(7)]
    assert memory.kept() == 0
    assert [float(v.mean()) for v in (*held, again)] == list(range(8))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux counts these pages")
def test_what_passes_the_limit_is_offered_to_the_system() -> None:
    memory = Memory(4 * LEAST_BYTES)
    held = [memory.empty((ROWS, 64), torch.float32).fill_(i) for i in range(8)]
    before = _offered()
    held.clear()
    assert memory.kept() >= 16 * LEAST_BYTES
    offered = _offered() - before
    assert 11 * LEAST_BYTES <= offered <= memory.kept() - 3 * LEAST_BYTES


def test_without_such_an_offer_the_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_OFFER", None)
    memory = Memory(4 * LEAST_BYTES)
    held = [memory.empty((ROWS, 64), torch.float32) for _ in range(8)]
    held.clear()
    assert 0 < memory.kept() <= 4 * LEAST_BYTES


def test_small_and_much_smaller_outputs_take_no_block():
    memory = Memory(64 * LEAST_BYTES)
    held = [memory.empty((8 * ROWS, 64), torch.float32) for _ in range(2)]
    del held[0]
    before = memory.kept()
    assert before > 0
    small = memory.empty((ROWS // 4, 64), torch.float32)
    assert memory.kept() == before
    smaller = memory.empty((ROWS, 64), torch.float32)
    assert memory.kept() == 0  # what fits nothing makes room
    assert small.shape[0] < smaller.shape[0]


def test_threads_do_not_meet_in_one_block():
    memory = Memory(64 * LEAST_BYTES)
    wrong = []

    def work(number):
        for _ in range(50):
            mine = memory.empty((ROWS, 64), torch.float32)
            mine[::999] = number
            wrong.extend([number] * int((mine[::999] != number).sum()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _child(memory, queue):
    mine = memory.empty((ROWS, 64), torch.float32).fill_(5)
    queue.put(float(mine.mean()))


def test_a_forked_child_has_copies_of_its_own():
    memory = Memory(8 * LEAST_BYTES)
    other, kept = (memory.empty((ROWS, 64), torch.float32) for _ in range(2))
    place = kept.data_ptr()
    del kept
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(memory, queue))
    again = memory.empty((ROWS, 64), torch.float32).fill_(1)
    assert again.data_ptr() == place
    child.start()
    assert queue.get(timeout=60) == 5
    child.join()
    assert float(again.mean()) == 1
    assert other.data_ptr() != place


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_of_layers_come_from_it(dtype):
    rows = torch.arange(2 * ROWS, dtype=torch.int32)
    splits = torch.tensor([0, len(rows)])
    x, w = torch.ones(len(rows), 64, dtype=dtype), torch.eye(64, dtype=dtype).reshape(64, 1, 64)
    with _registry.force("cpu"):
        other = V.conv_forward(x, w, rows, rows, splits, [], [], len(rows), 1)
        first = V.conv_forward(x, w, rows, rows, splits, [], [], len(rows), 1)
        place = first.data_ptr()
        del first
        again = V.conv_forward(x, w, rows, rows, splits, [], [], len(rows), 1)
    assert again.data_ptr() == place
    assert torch.equal(other, x)
    assert torch.equal(again, x)
    assert torch.equal(again.clone().share_memory_(), x)
