"""`torchsparse.nn.functional.devoxelize`."""

from .voxelize import calc_ti_weights, spdevoxelize

__all__ = ["calc_ti_weights", "spdevoxelize"]
