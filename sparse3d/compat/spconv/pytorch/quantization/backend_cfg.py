"""`spconv.pytorch.quantization.backend_cfg`."""

from .....nn.quantization import (
    get_spconv_backend_config,
    get_spconv_convert_custom_config,
    get_spconv_prepare_custom_config,
    prepare_spconv_torch_inference,
)

__all__ = [
    "get_spconv_backend_config",
    "get_spconv_convert_custom_config",
    "get_spconv_prepare_custom_config",
    "prepare_spconv_torch_inference",
]
