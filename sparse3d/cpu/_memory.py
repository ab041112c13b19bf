"""Memory of large outputs, used again.

The system clears every page it hands out, and for wide layers that costs as much as a fifth of the
convolution. Outputs are therefore cut from segments that stay: a freed range joins its neighbours
and serves outputs of any size. Kept are no more than was ever in use at one time and a segment. Of
that, segments beyond `KEPT_BYTES` are offered to the system, which takes their pages when it needs
some; a step of training finds there what the last one freed.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from typing import NamedTuple

import torch

# Smaller ones come from the C library, which keeps its own.
LEAST_BYTES = 4 << 20
KEPT_BYTES = 512 << 20
SEGMENT_BYTES = 128 << 20  # address space: what no output touched takes no memory
_PAGE = 4096
_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)
_OFFER = getattr(mmap, "MADV_FREE", None)


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


class _Segment:
    """One mapping and the ranges (begin, end) of it that are free, in order."""

    def __init__(self, block: mmap.mmap) -> None:
        self.block = block
        self.free = [(0, len(block))]
        self.live = 0
        self.touched = 0  # bytes from its start that outputs ever reached
        self.offered = False

    def kept(self) -> int:
        """Free bytes that take memory of this process alone."""
        return 0 if self.offered else self.touched - self.live

    def take(self, begin: int, size: int) -> None:
        at = next(i for i, (first, _) in enumerate(self.free) if first == begin)
        end = self.free[at][1]
        self.free[at : at + 1] = [(begin + size, end)] if begin + size < end else []
        self.live += size
        self.offered = False
        self.touched = max(self.touched, begin + size)

    def give(self, begin: int, size: int) -> None:
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self.free, (begin, begin + size)]):
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        self.free = joined
        self.live -= size


class _Place(NamedTuple):
    segment: _Segment
    begin: int
    size: int


class Memory:
    """Ranges that come back when the tensor over them dies. A dying tensor, which the collector may
    meet anywhere, only leaves a note; the notes are read under the lock."""

    def __init__(self, kept_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.kept_bytes, self.segment_bytes = kept_bytes, segment_bytes
        self.lock = threading.Lock()
        self._segments: list[_Segment] = []  # oldest first
        self._returned: deque[_Place] = deque()
        self._most = 0

    def kept(self) -> int:
        """Bytes held for outputs to come."""
        with self.lock:
            self._collect()
            return self._kept()

    def _kept(self) -> int:
        return sum(segment.kept() for segment in self._segments)

    def _collect(self) -> None:
        """Read the notes; then give whole segments back to the system, the oldest first."""
        while self._returned:
            segment, begin, size = self._returned.popleft()
            segment.give(begin, size)
        for segment in self._idle():
            if sum(len(s.block) for s in self._segments) > self._most + 2 * self.segment_bytes:
                self._segments.remove(segment)
            elif self._kept() > self.kept_bytes and not segment.offered:
                segment.offered = _advise(segment.block, _OFFER)
                if not segment.offered:
                    self._segments.remove(segment)

    def _idle(self) -> list[_Segment]:
        return [segment for segment in self._segments if not segment.live]

    def _take(self, size: int) -> _Place:
        size = -(-size // _PAGE) * _PAGE
        with self.lock:
            self._collect()
            fitting = [
                (end - begin, number, begin)
                for number, segment in enumerate(self._segments)
                for begin, end in segment.free
                if end - begin >= size
            ]
            if fitting:
                _, number, begin = min(fitting)
                segment = self._segments[number]
            else:
                segment, begin = self._grow(size), 0
            segment.take(begin, size)
            self._most = max(self._most, sum(segment.live for segment in self._segments))
            return _Place(segment, begin, size)

    def _grow(self, size: int) -> _Segment:
        try:
            block = _mapped(max(size, self.segment_bytes))
        except MemoryError:
            for idle in self._idle():
                self._segments.remove(idle)
            block = _mapped(size)
        self._segments.append(_Segment(block))
        return self._segments[-1]

    def _give(self, place: _Place) -> None:
        self._returned.append(place)
        if self.lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self.lock.release()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor; a large one lies in a range of its own."""
        count = 1
        for length in shape:
            count *= length
        size = count * dtype.itemsize
        if size < LEAST_BYTES:
            return torch.empty(shape, dtype=dtype)
        place = self._take(size)
        view = memoryview(place.segment.block)[place.begin : place.begin + size]
        weakref.finalize(view, self._give, place).atexit = False
        storage = torch.frombuffer(view, dtype=dtype, count=count).untyped_storage()
        out = torch.empty(0, dtype=dtype)
        out.set_(storage, 0, shape)  # type: ignore[call-overload]
        return out


memory = Memory(KEPT_BYTES)
empty = memory.empty
# A child must not find the lock taken by a thread that it does not have.
os.register_at_fork(
    before=memory.lock.acquire,
    after_in_parent=memory.lock.release,
    after_in_child=memory.lock.release,
)
