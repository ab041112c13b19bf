"""`torchsparse.nn.functional.conv.kmap.upsample`."""

from ..conv import spupsample_generative

__all__ = ["spupsample_generative"]
