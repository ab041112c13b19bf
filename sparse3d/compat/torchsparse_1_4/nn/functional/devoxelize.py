"""`torchsparse.nn.functional.devoxelize`."""

from . import calc_ti_weights, spdevoxelize

__all__ = ["calc_ti_weights", "spdevoxelize"]
