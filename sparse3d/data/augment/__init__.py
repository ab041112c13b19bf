"""Training clouds, moved and mixed as the published recipes do it; random numbers come in."""

from sparse3d.data.augment.mixing import THINGS, laser_mix, polar_mix
from sparse3d.data.augment.moving import Cloud, drop, flip, hide_sector, jitter, rotate, scale
from sparse3d.data.augment.recipe import Augment

__all__ = [
    "THINGS",
    "Augment",
    "Cloud",
    "drop",
    "flip",
    "hide_sector",
    "jitter",
    "laser_mix",
    "polar_mix",
    "rotate",
    "scale",
]
