"""Moves and mixes: what they keep, what they change, and that nothing but the generator decides."""

from __future__ import annotations

import numpy as np
import pytest

from sparse3d.data import simulate
from sparse3d.data.augment import (
    THINGS,
    Augment,
    Cloud,
    drop,
    flip,
    hide_sector,
    jitter,
    laser_mix,
    polar_mix,
    rotate,
    scale,
)
from sparse3d.data.augment.recipe import KEYS
from sparse3d.data.simulate import Sensor
from sparse3d.data.tables import Table


def street(seed: int) -> Cloud:
    made = simulate(seed, Sensor(beams=24, azimuths=400))
    return Cloud(made.points, made.labels)


FIRST, SECOND = street(1), street(2)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def azimuth(cloud: Cloud) -> np.ndarray:
    return np.arctan2(cloud.points[:, 1], cloud.points[:, 0])


def elevation(cloud: Cloud) -> np.ndarray:
    x, y, z = cloud.points[:, :3].T.astype(np.float64)
    return np.rad2deg(np.arctan2(z, np.hypot(x, y)))


def test_moves_are_what_they_are_called() -> None:
    turned = rotate(FIRST, np.pi / 2)
    np.testing.assert_allclose(turned.points[:, 0], -FIRST.points[:, 1], atol=1e-5)
    np.testing.assert_allclose(turned.points[:, 1], FIRST.points[:, 0], atol=1e-5)
    np.testing.assert_array_equal(turned.points[:, 2:], FIRST.points[:, 2:])
    np.testing.assert_array_equal(flip(FIRST, "x").points[:, 0], -FIRST.points[:, 0])
    np.testing.assert_array_equal(flip(FIRST, "y").points[:, [0, 2]], FIRST.points[:, [0, 2]])
    np.testing.assert_array_equal(scale(FIRST, 2).points[:, :3], 2 * FIRST.points[:, :3])
    np.testing.assert_array_equal(scale(FIRST, 2).points[:, 3], FIRST.points[:, 3])
    with pytest.raises(ValueError, match="axis must be 'x' or 'y'"):
        flip(FIRST, "z")
    shaken = jitter(FIRST, 0.02, rng())
    shift = (shaken.points - FIRST.points).astype(np.float64)
    assert 0.015 < shift[:, :3].std() < 0.025
    assert np.abs(shift[:, :3]).max() <= 0.1001
    assert (shift[:, 3] == 0).all()


def test_thinning_keeps_points_whole() -> None:
    pairs = set(zip(map(bytes, FIRST.points), FIRST.labels.tolist(), strict=True))
    for thin in (drop(FIRST, 0.3, rng()), hide_sector(FIRST, 3.0, 1.0)):
        assert set(zip(map(bytes, thin.points), thin.labels.tolist(), strict=True)) <= pairs
    assert abs(len(drop(FIRST, 0.3, rng()).points) / len(FIRST.points) - 0.7) < 0.03
    hidden = azimuth(hide_sector(FIRST, 3.0, 1.0))  # across the seam at pi
    assert not ((hidden > 3.0) | (hidden < 4.0 - 2 * np.pi)).any()
    assert (azimuth(FIRST) > 3.0).any()


@pytest.mark.parametrize("bands", [3, 4, 5, 6])
def test_laser_mix_takes_bands_in_turn(bands: int) -> None:
    mixed = laser_mix(FIRST, SECOND, rng(), bands=[bands])
    angle = elevation(mixed)
    band = np.clip((3 - angle) // (28 / bands), 0, bands - 1).astype(int)
    size = (np.clip((3 - elevation(FIRST)) // (28 / bands), 0, bands - 1) % 2 == 0).sum()
    assert (band[:size] % 2 == 0).all()
    assert (band[size:] % 2 == 1).all()
    assert 0 < size < len(angle)
    own = {bytes(p) for p in FIRST.points}
    assert all(bytes(p) in own for p in mixed.points[:size])
    assert not any(bytes(p) in own for p in mixed.points[size:])


def test_polar_mix_swaps_half_a_turn_and_pastes_things_three_times() -> None:
    things = SECOND.pick(np.isin(SECOND.labels & 0xFFFF, THINGS))
    assert len(things.points) > 20
    plain = polar_mix(FIRST, SECOND, rng(), swap=0)
    count = len(FIRST.points)
    np.testing.assert_array_equal(plain.points[:count], FIRST.points)
    assert len(plain.points) == count + 3 * len(things.points)
    copies = plain.points[count:].reshape(3, -1, 4)
    np.testing.assert_array_equal(copies[0], things.points)
    for copy in copies[1:]:
        np.testing.assert_array_equal(copy[:, 2:], things.points[:, 2:])
        turn = (np.arctan2(copy[:, 1], copy[:, 0]) - azimuth(things)) % (2 * np.pi)
        assert turn.max() - turn.min() < 1e-3
        assert 0 < turn.mean() < 4 * np.pi / 3
    swapped = polar_mix(FIRST, SECOND, rng(), swap=1, things=())
    own = {bytes(p) for p in FIRST.points}
    mine = np.array([bytes(p) in own for p in swapped.points])
    assert 0.2 < mine.mean() < 0.8
    sides = azimuth(swapped)
    # Halves do not overlap: some start angle separates them.
    starts = np.linspace(-np.pi, np.pi, 721)
    apart = [(((sides - s) % (2 * np.pi) < np.pi) != mine).mean() for s in starts]
    assert max(apart) > 0.99


def test_nothing_given_nothing_done_and_arguments_stay() -> None:
    before = FIRST.points.copy()
    assert Augment()(FIRST, rng(), lambda: SECOND) is FIRST
    busy = Augment(180, (0.9, 1.1), "xy", 0.02, 0.3, 0.5, 0.5, 0.5)
    for seed in range(8):
        made, again = (busy(FIRST, rng(seed), lambda: SECOND) for _ in range(2))
        np.testing.assert_array_equal(made.points, again.points)
        np.testing.assert_array_equal(made.labels, again.labels)
        assert len(made.points) == len(made.labels)
        assert made.points.dtype == np.float32
        assert made.labels.dtype == np.uint32
    assert not np.array_equal(made.points, busy(FIRST, rng(99), lambda: SECOND).points)
    np.testing.assert_array_equal(FIRST.points, before)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"rotates": 3}, r"got augment\.rotates; write augment\.rotate"),
        ({"zoom": 3}, r"got augment\.zoom; remove it"),
        ({"rotate": 200}, r"augment\.rotate must be a number from 0 to 180, got 200"),
        ({"scale": [1.1, 0.9]}, "the smaller factor, then the larger"),
        ({"scale": 1}, "scale must be 2 numbers from 0.1 to 10, got 1"),
        ({"flip": "z"}, "flip must be one of"),
        ({"lasermix": 0.6, "polarmix": 0.5}, "polarmix must be at most 0.4 beside lasermix"),
    ],
)
def test_wrong_entries(entries: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Augment.parse(Table(entries, KEYS, "a.yaml", "augment."))
