"""`torchsparse.nn.functional.downsample`."""

from . import spdownsample

__all__ = ["spdownsample"]
