"""The street simulator: repeatable, lawful, and like a street."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from sparse3d.data import Sensor, height_above_ground, random_sensor, simulate
from sparse3d.data.semantic_kitti import RAW_NAMES
from sparse3d.data.simulate import RAW_IDS


@pytest.fixture(scope="module")
def streets() -> list:
    return [simulate(seed) for seed in range(4)]


def test_a_seed_is_a_scan(streets: list) -> None:
    again = simulate(2)
    np.testing.assert_array_equal(again.points, streets[2].points)
    np.testing.assert_array_equal(again.labels, streets[2].labels)
    assert not np.array_equal(streets[0].points[:100], streets[1].points[:100])


def test_shape_and_ranges(streets: list) -> None:
    for street in streets:
        assert street.points.dtype == np.float32
        assert street.labels.dtype == np.uint32
        assert 100_000 < len(street.points) == len(street.labels) < 64 * 2083
        assert np.isfinite(street.points).all()
        assert np.linalg.norm(street.points[:, :3], axis=1).min() > 0.7
        assert street.points[:, 3].min() >= 0
        assert street.points[:, 3].max() < 1
        classes = set(np.unique(street.labels & 0xFFFF).tolist())
        assert classes <= set(RAW_IDS) | {1}
        assert set(RAW_IDS) <= set(RAW_NAMES)


def test_every_class_occurs(streets: list) -> None:
    together = np.concatenate([s.labels & 0xFFFF for s in streets])
    ids, counts = np.unique(together, return_counts=True)
    found = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    assert all(found.get(raw, 0) > 200 for raw in RAW_IDS), found


def test_points_lie_on_the_beams() -> None:
    sensor = Sensor(noise=0.0)
    points = simulate(0, sensor).points
    classes = simulate(0, sensor).labels & 0xFFFF
    points = points[classes != 1].astype(np.float64)
    elevation = np.arcsin(points[:, 2] / np.linalg.norm(points[:, :3], axis=1))
    gap = np.abs(elevation[:, None] - np.sort(sensor.elevations())[None]).min(1)
    assert np.degrees(gap).max() < 0.1
    assert np.degrees(elevation).min() > -25.1
    assert np.degrees(elevation).max() < 2.2
    # KITTI stores beam by beam from the top
    assert (np.diff(elevation) > 0.01).mean() < 0.001


def test_the_road_is_the_sensor_height_below() -> None:
    for height in (1.2, 1.73, 2.2):
        street = simulate(5, Sensor(height=height, beams=32))
        near = np.linalg.norm(street.points[:, :2], axis=1) < 7
        road = near & (street.labels == 40)
        assert np.median(street.points[road, 2]) == pytest.approx(-height, abs=0.12)


def test_instances_separate_cars(streets: list) -> None:
    labels = streets[1].labels
    cars = labels[(labels & 0xFFFF) == 10]
    assert (cars >> 16 > 0).all()
    spread = []
    for instance in np.unique(cars):
        member = streets[1].points[labels == instance]
        spread.append(np.ptp(member[:, :3], axis=0).max())
    assert max(spread) < 7
    assert (labels[(labels & 0xFFFF) == 50] >> 16 == 0).all()


def test_losses_and_beams() -> None:
    plain = Sensor(beams=32, azimuths=1024)
    full = len(simulate(1, plain).points)
    thinned = len(simulate(1, replace(plain, dropout=0.3)).points)
    assert 0.66 < thinned / full < 0.76
    assert len(simulate(1, replace(plain, beams=128)).points) > 3 * full
    assert len(np.unique(plain.elevations())) == 32


def test_noise_is_as_named() -> None:
    sensor = Sensor(azimuths=1024)
    quiet, loud = simulate(3, replace(sensor, noise=0.0)), simulate(3, replace(sensor, noise=0.03))
    near = [np.linalg.norm(s.points[:, :2], axis=1) < 8 for s in (quiet, loud)]
    z = [s.points[n & (s.labels == 40), 2] for s, n in zip((quiet, loud), near, strict=True)]
    assert z[1].std() > z[0].std()


def test_random_sensors_cover_the_training_range() -> None:
    rng = np.random.default_rng(0)
    sensors = [random_sensor(rng) for _ in range(200)]
    assert {s.beams for s in sensors} == {32, 64, 128}
    heights = [s.height for s in sensors]
    assert min(heights) < 1.3
    assert max(heights) > 2.1
    assert max(s.dropout for s in sensors) > 0.27


def test_speed() -> None:
    start = time.process_time()
    simulate(7)
    assert time.process_time() - start < 10  # about one second on an idle core


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("beams", 4, "beams must be at least 8"),
        ("azimuths", 3, "azimuths must be at least 16"),
        ("height", 9.0, "height must lie in"),
        ("dropout", 1.0, "dropout must lie in"),
        ("noise", -1.0, "noise must be"),
        ("max_range", 1.0, "max_range must be"),
    ],
)
def test_bad_sensors(field: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sensor(**{field: value})


def test_height_above_ground_ignores_mounting_and_slope(streets: list) -> None:
    for street in streets:
        classes = street.labels & 0xFFFF
        above = height_above_ground(street.points)
        near = np.linalg.norm(street.points[:, :2], axis=1) < 25
        road = above[near & (classes == 40)]
        assert np.percentile(np.abs(road), 90) < 0.25
        tilted = street.points[:, :3].copy()
        tilted[:, 2] += 0.05 * tilted[:, 0] + 7.0
        shifted = height_above_ground(tilted)
        assert np.percentile(np.abs(shifted - above), 90) < 0.15
    assert height_above_ground(np.zeros((0, 3))).shape == (0,)
    assert abs(float(height_above_ground(np.ones((1, 3)))[0])) < 0.35  # within one cell's slope


def test_stray_returns_below_do_not_sink_the_ground(streets: list) -> None:
    points = streets[3].points
    stray = np.tile(np.array([[10.0, 3.0, -12.0, 0.1]], np.float32), (8, 1))
    stray[:, 0] += np.arange(8) * 0.05
    above = height_above_ground(points)
    mixed = height_above_ground(np.concatenate([points, stray]))[: len(points)]
    assert np.percentile(np.abs(mixed - above), 99) < 0.1
