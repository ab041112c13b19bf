"""Memory of large outputs, used again.

The system clears every page it hands out, and for wide layers that costs as much as a fifth of the
convolution. Blocks of freed outputs are kept for the next ones: together with those in use, no more
than was ever in use at one time. What passes `KEPT_BYTES` is offered to the system, which takes its
pages when it needs some; a step of training finds there what the last one freed. A new block takes
the room of those that fit nothing.
"""

from __future__ import annotations

import mmap
import weakref

import torch

# Smaller ones come from the C library, which keeps its own.
LEAST_BYTES = 4 << 20
KEPT_BYTES = 512 << 20
_STEPS = 8  # sizes in every doubling, so that scenes of about one size share blocks
_MOST_SPARE = 1.5  # times the size asked for
_OFFER = getattr(mmap, "MADV_FREE", None)
_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)


def _rounded(size: int) -> int:
    step = 1 << max(size.bit_length() - _STEPS.bit_length(), 0)
    return -(-size // step) * step


def _mapped(size: int) -> mmap.mmap:
    try:
        block = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # as torch's and the library's own failures are told
        raise MemoryError(f"no memory for an output of {size} bytes: {error.strerror}") from None
    _advise(block, _HUGE)
    return block


def _advise(block: mmap.mmap, advice: int | None) -> bool:
    """Whether the system heard it."""
    if advice is None:
        return False
    try:
        block.madvise(advice)
    except OSError:  # a kernel without it
        return False
    return True


class Memory:
    """Blocks that come back when the tensor over them dies. Its lists change by single steps of
    the interpreter, so it needs no lock, which a forked child could find taken."""

    def __init__(self, kept_bytes: int) -> None:
        self.kept_bytes = kept_bytes
        self._free: list[mmap.mmap] = []
        self._live: dict[int, int] = {}  # bytes of a block by its id
        self._most = 0

    def kept(self) -> int:
        """Bytes held for outputs to come."""
        return sum(len(block) for block in tuple(self._free))

    def _take(self, size: int) -> mmap.mmap:
        fitting = [b for b in tuple(self._free) if size <= len(b) <= _MOST_SPARE * size]
        for block in sorted(fitting, key=len):
            if self._remove(block):
                return block
        size = _rounded(size)
        self._shrink(self.kept() - size)  # what fits nothing makes room
        try:
            return _mapped(size)
        except MemoryError:
            self._shrink(0)
            return _mapped(size)

    def _remove(self, block: mmap.mmap) -> bool:
        try:
            self._free.remove(block)
        except ValueError:  # another thread was faster
            return False
        return True

    def _shrink(self, limit: int) -> None:
        """Give the oldest blocks back to the system until no more than `limit` bytes are kept."""
        while (free := self._free[:1]) and self.kept() > limit:
            self._remove(free[0])

    def _give(self, block: mmap.mmap) -> None:
        del self._live[id(block)]
        more = self.kept() + len(block) > self.kept_bytes
        offered = more and _advise(block, _OFFER)
        self._free.append(block)
        limit = self._most - sum(tuple(self._live.values()))
        self._shrink(limit if offered or not more else min(limit, self.kept_bytes))

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor; a large one lies in a block of its own."""
        count = 1
        for length in shape:
            count *= length
        size = count * dtype.itemsize
        if size < LEAST_BYTES:
            return torch.empty(shape, dtype=dtype)
        block = self._take(size)
        self._live[id(block)] = len(block)
        self._most = max(self._most, sum(tuple(self._live.values())))
        view = memoryview(block)
        weakref.finalize(view, self._give, block).atexit = False
        storage = torch.frombuffer(view, dtype=dtype, count=count).untyped_storage()
        out = torch.empty(0, dtype=dtype)
        out.set_(storage, 0, shape)  # type: ignore[call-overload]
        return out


memory = Memory(KEPT_BYTES)
empty = memory.empty
