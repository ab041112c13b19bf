"""Archives that the commands read back, under malformed bytes: refused in a line, or made again."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fuzz.bytes_of import EFFORTS, fuzz, mutations, within

pytest.importorskip("yaml")

from kitti_folder import make_kitti

from sparse3d.data.augment import Cloud
from sparse3d.data.dataset import SemanticKITTI
from sparse3d.data.submission import check_submission, write_submission
from sparse3d.train import streams


@pytest.mark.parametrize("seconds", EFFORTS)
def test_submissions(seconds: float, tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {11: 1, 12: 1}, labels=False)
    data = SemanticKITTI(root, "test", sequences=[11, 12])
    for frame in data.frames:
        place = tmp_path / f"labels/sequences/{frame.sequence}/predictions/{frame.number}.label"
        place.parent.mkdir(parents=True, exist_ok=True)
        np.full(frame.scan.stat().st_size // 16, 40, "<u4").tofile(place)
    path = tmp_path / "a.zip"
    write_submission(path, data, tmp_path / "labels", lambda note: None)

    def check(data_of_zip: bytes) -> None:
        path.write_bytes(data_of_zip)
        refusal = f"{path}: "
        with within(20):
            try:
                check_submission(path, data, lambda note: None)
            except ValueError as error:
                refusal = str(error)
        assert refusal.startswith(f"{path}: ")
        assert "\n" not in refusal

    fuzz(check, seconds, 400, data_of_zip=mutations(path.read_bytes()))


@pytest.mark.parametrize("seconds", EFFORTS)
def test_kept_streets(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(np.ones((3, 4), np.float32), np.full(3, 40, np.uint32))
    monkeypatch.setattr(streams, "one_street", lambda *_: cloud)
    streets, path = streams.Streets(1, 1.0, 0, tmp_path), tmp_path / "000000.npz"
    streets.cloud(0)

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with within(20):
            found = streets.cloud(0)
        assert found.points.shape == (3, 4)
        assert found.labels.shape == (3,)

    for other in (np.ones(5), np.array([{}, {}], object)):  # no archive, and objects
        file = io.BytesIO()
        np.save(file, other)
        check(file.getvalue())
    fuzz(check, seconds, 400, data=mutations(path.read_bytes()))
