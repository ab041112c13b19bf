"""`spconv.pytorch.quantization.fake_q`."""

from .....nn.quantization import (
    get_default_spconv_qconfig_mapping,
    get_default_spconv_trt_ptq_qconfig,
    get_default_spconv_trt_qat_qconfig,
)

__all__ = [
    "get_default_spconv_qconfig_mapping",
    "get_default_spconv_trt_ptq_qconfig",
    "get_default_spconv_trt_qat_qconfig",
]
