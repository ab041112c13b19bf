"""A small SemanticKITTI folder of simulated streets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparse3d.data import Sensor, simulate
from sparse3d.data.files import write_labels, write_scan

SENSOR = Sensor(beams=16, azimuths=256)


def make_kitti(root: Path, scans: Mapping[int, int], labels: bool = True) -> Path:
    """So many scans for each sequence; the seed of a scan is 100 * sequence + number."""
    for sequence, count in scans.items():
        folder = root / "sequences" / f"{sequence:02d}"
        (folder / "velodyne").mkdir(parents=True)
        if labels:
            (folder / "labels").mkdir()
        for number in range(count):
            street = simulate(100 * sequence + number, SENSOR)
            write_scan(folder / "velodyne" / f"{number:06d}.bin", street.points)
            if labels:
                write_labels(folder / "labels" / f"{number:06d}.label", street.labels)
    return root
