"""`torchsparse.nn.functional.conv.conv_mode`."""

from .conv_config import (
    ConvMode,
    get_conv_mode,
    get_downsample_mode,
    get_kmap_mode,
    set_conv_mode,
    set_downsample_mode,
    set_kmap_mode,
)

__all__ = [
    "ConvMode",
    "get_conv_mode",
    "get_downsample_mode",
    "get_kmap_mode",
    "set_conv_mode",
    "set_downsample_mode",
    "set_kmap_mode",
]
