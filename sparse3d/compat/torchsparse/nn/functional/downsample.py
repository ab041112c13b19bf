"""`torchsparse.nn.functional.downsample`."""

from .conv import spdownsample

__all__ = ["spdownsample"]
