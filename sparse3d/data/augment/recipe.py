"""Which ways of moving and mixing a recipe uses, and how much of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparse3d.data.augment import mixing, moving
from sparse3d.data.augment.moving import Cloud
from sparse3d.data.tables import Table

__all__ = ["Augment"]

KEYS = (
    "rotate", "rotate_chance", "scale", "flip", "jitter", "jitter_least", "jitter_limit", "drop",
    "sector", "lasermix", "polarmix", "mix3d",
)  # fmt: skip


@dataclass(frozen=True)
class Augment:
    """Moves of a training cloud; the default moves nothing.

    Attributes:
        rotate: Largest turn about the vertical in degrees, either way.
        rotate_chance: Probability of the turn.
        scale: Smallest and largest factor.
        flip: Axes along which a cloud is mirrored, each with probability 0.5.
        jitter: Largest standard deviation of the noise on coordinates, in metres.
        jitter_least: Smallest standard deviation.
        jitter_limit: Largest deviation in metres; 0 means five times the standard deviation.
        drop: Largest share of points that half of the clouds lose.
        sector: Probability that a sector of 0.2 to 1.5 radians is hidden.
        lasermix: Probability of LaserMix with another cloud.
        polarmix: Probability of PolarMix with another cloud; never both.
        mix3d: Probability that two clouds of a batch, each moved by itself, become one (Nekrasov
            et al., 3DV 2021); where both have a voxel, the first has it.
    """

    rotate: float = 0.0
    scale: tuple[float, ...] = (1.0, 1.0)
    flip: str = ""
    jitter: float = 0.0
    drop: float = 0.0
    sector: float = 0.0
    lasermix: float = 0.0
    polarmix: float = 0.0
    rotate_chance: float = 1.0
    jitter_least: float = 0.0
    jitter_limit: float = 0.0
    mix3d: float = 0.0

    @classmethod
    def parse(cls, table: Table) -> Augment:
        """From the table ``augment`` of a training config."""
        made = cls(
            rotate=table.number("rotate", 0.0, 0, 180),
            rotate_chance=table.number("rotate_chance", 1.0, 0, 1),
            scale=table.numbers("scale", (1.0, 1.0), 0.1, 10),
            flip=table.choice("flip", "none", ("none", "x", "y", "xy")).replace("none", ""),
            jitter=table.number("jitter", 0.0, 0, 1),
            jitter_least=table.number("jitter_least", 0.0, 0, 1),
            jitter_limit=table.number("jitter_limit", 0.0, 0, 10),
            drop=table.number("drop", 0.0, 0, 0.99),
            sector=table.number("sector", 0.0, 0, 1),
            lasermix=table.number("lasermix", 0.0, 0, 1),
            polarmix=table.number("polarmix", 0.0, 0, 1),
            mix3d=table.number("mix3d", 0.0, 0, 1),
        )
        if not made.rotate:
            table.refuse(("rotate_chance",), "without rotate")
        if not made.jitter:
            table.refuse(("jitter_least", "jitter_limit"), "without jitter")
        if made.jitter_least > made.jitter:
            raise table.fail("jitter_least", f"at most jitter, {made.jitter:g}")
        if made.lasermix + made.polarmix > 1:
            raise table.fail("polarmix", f"at most {1 - made.lasermix:g} beside lasermix")
        if made.scale[0] > made.scale[1]:
            raise table.fail("scale", "the smaller factor, then the larger")
        return made

    def __call__(
        self,
        cloud: Cloud,
        rng: np.random.Generator,
        other: Callable[[], Cloud],
        clip: Callable[[Cloud], Cloud] | None = None,
    ) -> Cloud:
        """The moved cloud.

        Args:
            cloud: What is moved.
            rng: Source of every choice.
            other: Gives a further cloud; called only where two are mixed.
            clip: What the network's range leaves of the cloud: of the turned one, before it is
                mirrored, scaled and shaken.
        """
        chance = rng.random()
        if chance < self.lasermix:
            cloud = mixing.laser_mix(cloud, other(), rng)
        elif chance < self.lasermix + self.polarmix:
            cloud = mixing.polar_mix(cloud, other(), rng)
        if self.rotate and (self.rotate_chance == 1 or rng.random() < self.rotate_chance):
            cloud = moving.rotate(cloud, np.deg2rad(rng.uniform(-self.rotate, self.rotate)))
        if clip is not None:
            cloud = clip(cloud)
        for axis in self.flip:
            if rng.random() < 0.5:
                cloud = moving.flip(cloud, axis)
        if self.scale != (1.0, 1.0):
            cloud = moving.scale(cloud, rng.uniform(self.scale[0], self.scale[1]))
        return self._thinned(cloud, rng)

    def _thinned(self, cloud: Cloud, rng: np.random.Generator) -> Cloud:
        if self.jitter:
            sigma = rng.uniform(self.jitter_least, self.jitter)
            cloud = moving.jitter(cloud, sigma, rng, self.jitter_limit or None)
        if self.drop and rng.random() < 0.5:
            cloud = moving.drop(cloud, rng.uniform(0, self.drop), rng)
        if self.sector and rng.random() < self.sector:
            cloud = moving.hide_sector(cloud, rng.uniform(-np.pi, np.pi), rng.uniform(0.2, 1.5))
        return cloud
