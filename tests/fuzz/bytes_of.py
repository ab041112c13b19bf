"""Malformed bytes, time limits and memory limits for the fuzz tests."""

from __future__ import annotations

import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import numpy.ma  # noqa: F401, numpy's first median would import it at a file's cost
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EFFORTS = [
    pytest.param(0, id="quick"),
    pytest.param(75, id="long", marks=pytest.mark.nightly),
]
"""Seconds a target: 0 is a fixed set of examples; all long ones together take half an hour."""

EXTREMES = (0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**64 - 1)
SLACK = 2**20


@st.composite
def mutations(draw: Any, seed: bytes) -> bytes:
    """Valid bytes that went through one to six accidents, or bytes of no origin."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=400))  # type: ignore[no-any-return]
    data = bytearray(seed)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.integers(0, 6))
        if kind == 0:
            del data[place:]
        elif kind == 1:
            del data[place : place + draw(st.integers(1, 64))]
        elif kind == 2:
            data[place:place] = draw(st.binary(min_size=1, max_size=64))
        elif kind == 3 and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == 4:
            width = draw(st.sampled_from([2, 4, 8]))
            number = draw(st.sampled_from(EXTREMES)) % 2 ** (8 * width)
            order = draw(st.sampled_from(["little", "big"]))
            data[place : place + width] = number.to_bytes(width, order)
        elif kind == 5:
            data[place:place] = data[place : place + draw(st.integers(1, 200))]
        else:
            data[place : place + draw(st.integers(1, 64))] = b"\0" * draw(st.integers(0, 64))
    return bytes(data)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail what hangs."""

    def late(*_: object) -> None:
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def memory_of(size: int) -> Iterator[None]:
    """Fail what takes more than four times a file of `size` bytes, Python and numpy counted."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * size + SLACK, f"{peak} bytes for a file of {size}"


def fuzz(check: Callable[..., None], seconds: float, examples: int, **given_by: Any) -> None:
    """Run `check` on drawn arguments: `examples` fixed ones, or new ones for so many seconds."""
    base = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
    if not seconds:
        settings(base, max_examples=examples, derandomize=True)(given(**given_by)(check))()
        return
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turn += 1
        seeded = hypothesis.seed(time.time_ns())
        seeded(settings(base, max_examples=300)(given(**given_by)(check)))()
    assert turn
