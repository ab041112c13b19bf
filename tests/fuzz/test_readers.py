"""Readers of scans and labels under malformed bytes: a ScanError of one line, or a result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fuzz.bytes_of import EFFORTS, fuzz, memory_of, mutations, within

from sparse3d.data import LABEL_MAPS, ScanError, Sensor, read_labels, read_scan, simulate

STREET = simulate(5, Sensor(beams=8, azimuths=40))
SCAN = STREET.points[:100].astype("<f4").tobytes()
LABELS = STREET.labels[:100].astype("<u4").tobytes()


def _refused(error: Exception, path: Path) -> None:
    text = str(error)
    assert "\n" not in text
    assert str(path) in text


@pytest.mark.parametrize("seconds", EFFORTS)
def test_scans(seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"

    def check(data: bytes, drop: bool) -> None:
        path.write_bytes(data)
        with within(10), memory_of(len(data)):
            try:
                scan = read_scan(path, drop_invalid=drop)
            except ScanError as error:
                return _refused(error, path)
        assert scan.total * 16 == len(data)
        assert np.isfinite(scan.points).all()
        assert len(scan.points) == len(scan.rows) <= scan.total

    from hypothesis import strategies as st

    fuzz(check, seconds, 400, data=mutations(SCAN), drop=st.booleans())


@pytest.mark.parametrize("seconds", EFFORTS)
def test_labels(seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "a.label"

    def check(data: bytes, count: int | None) -> None:
        path.write_bytes(data)
        with within(10), memory_of(len(data)):
            try:
                labels = read_labels(path, count)
            except ScanError as error:
                return _refused(error, path)
        assert len(labels) * 4 == len(data)
        for table in LABEL_MAPS.values():
            assert table.to_train(labels, unknown="ignore").max(initial=0) < 20

    from hypothesis import strategies as st

    counts = st.none() | st.sampled_from([0, 99, 100, 101])
    fuzz(check, seconds, 300, data=mutations(LABELS), count=counts)


@pytest.mark.parametrize("columns", [3, 4, 5, 6])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
def test_memory_of_large_files(dtype: str, columns: int, tmp_path: Path) -> None:
    """Also where the values fit another layout, which the message names."""
    table = np.zeros((120_000, columns))
    table[:, :3] = np.random.default_rng(0).uniform(-80, 80, (120_000, 3))
    table[:, 2] /= 40
    table[:, 3:] = 0.5
    path = tmp_path / "a.bin"
    path.write_bytes(table.astype(dtype).tobytes())
    for drop in (False, True):
        with memory_of(path.stat().st_size):
            try:
                read_scan(path, drop_invalid=drop)
            except ScanError as error:
                _refused(error, path)
            else:
                assert (dtype, columns) == ("<f4", 4)
