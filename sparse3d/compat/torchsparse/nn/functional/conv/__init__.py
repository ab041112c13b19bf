"""`torchsparse.nn.functional.conv`."""

from . import conv_config, conv_mode
from .conv import (
    build_kernel_map,
    conv3d,
    convert_transposed_out_in_map,
    spdownsample,
    spupsample_generative,
    transpose_kernel_map,
)
from .conv_config import (
    ConvMode,
    Dataflow,
    get_conv_mode,
    get_downsample_mode,
    get_kmap_mode,
    set_conv_mode,
    set_downsample_mode,
    set_kmap_mode,
)
from .hash import sphash, sphashquery

__all__ = [
    "ConvMode",
    "Dataflow",
    "build_kernel_map",
    "conv3d",
    "conv_config",
    "conv_mode",
    "convert_transposed_out_in_map",
    "get_conv_mode",
    "get_downsample_mode",
    "get_kmap_mode",
    "set_conv_mode",
    "set_downsample_mode",
    "set_kmap_mode",
    "spdownsample",
    "sphash",
    "sphashquery",
    "spupsample_generative",
    "transpose_kernel_map",
]
