"""`torchsparse.nn.functional.conv.kmap.downsample`."""

from ..conv import spdownsample

__all__ = ["spdownsample"]
