"""`cumm.conv.bases`: names of passes, layouts and iterators."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "KRSC",
    "NCHW",
    "NHWC",
    "RSCK",
    "RSKC",
    "ConvIterAlgo",
    "ConvLayout",
    "ConvLayoutType",
    "ConvMode",
    "ConvOpType",
]


class ConvMode(Enum):
    """Whether the kernel is flipped; sparse convolutions never flip it."""

    kConvolution = 0
    kCrossCorrelation = 1


class ConvIterAlgo(Enum):
    """Accepted; the backend chooses."""

    Analytic = 0
    Optimized = 1


class ConvLayoutType(Enum):
    """Where the channels stand."""

    ChannelFirst = 0
    ChannelLast = 1
    SpatialFirst = 2


class ConvOpType(Enum):
    """Which pass of a convolution."""

    kForward = 0
    kBackwardInput = 1
    kBackwardWeight = 2


class ConvLayout:
    """A layout of features or kernels.

    Args:
        layout_type: where the channels stand.
        interleave: channels that lie together.
    """

    def __init__(self, layout_type: ConvLayoutType, interleave: int = 1) -> None:
        self.layout_type = layout_type
        self.interleave = interleave

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConvLayout):
            return NotImplemented
        return (self.layout_type, self.interleave) == (other.layout_type, other.interleave)

    def __hash__(self) -> int:
        return hash((self.layout_type, self.interleave))

    def is_channel_first(self) -> bool:
        return self.layout_type == ConvLayoutType.ChannelFirst


NCHW = ConvLayout(ConvLayoutType.ChannelFirst)
NHWC = ConvLayout(ConvLayoutType.ChannelLast)
KRSC = ConvLayout(ConvLayoutType.ChannelLast)
RSKC = ConvLayout(ConvLayoutType.SpatialFirst)
RSCK = ConvLayout(ConvLayoutType.SpatialFirst)
