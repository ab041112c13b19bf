"""`torchsparse.nn.functional`."""

from .activation import leaky_relu, relu, silu
from .conv import (
    build_kernel_map,
    conv3d,
    conv_config,
    convert_transposed_out_in_map,
    spdownsample,
    spupsample_generative,
    transpose_kernel_map,
)
from .conv.conv_config import (
    ConvMode,
    Dataflow,
    clear_global_conv_config,
    get_conv_mode,
    get_default_conv_config,
    get_downsample_mode,
    get_global_conv_config,
    get_kmap_mode,
    set_conv_mode,
    set_downsample_mode,
    set_global_conv_config,
    set_kmap_mode,
)
from .hash import spcount, sphash, sphashquery
from .pooling import global_avg_pool, global_max_pool, spcrop
from .voxelize import calc_ti_weights, spdevoxelize, spvoxelize

__all__ = [
    "ConvMode",
    "Dataflow",
    "build_kernel_map",
    "calc_ti_weights",
    "clear_global_conv_config",
    "conv3d",
    "conv_config",
    "convert_transposed_out_in_map",
    "get_conv_mode",
    "get_default_conv_config",
    "get_downsample_mode",
    "get_global_conv_config",
    "get_kmap_mode",
    "global_avg_pool",
    "global_max_pool",
    "leaky_relu",
    "relu",
    "set_conv_mode",
    "set_downsample_mode",
    "set_global_conv_config",
    "set_kmap_mode",
    "silu",
    "spcount",
    "spcrop",
    "spdevoxelize",
    "spdownsample",
    "sphash",
    "sphashquery",
    "spupsample_generative",
    "spvoxelize",
    "transpose_kernel_map",
]
