"""`spconv.pytorch.quantization.fake_q`."""

from .....nn._observers import SYMMETRIC as default_symmetric_spconv_ptq_qconfig
from .....nn._observers import SYMMETRIC_IN_TRAINING as default_symmetric_spconv_qat_qconfig
from .....nn._observers import (
    SparseFusedMovingAvgObsFakeQuantize,
    SparseHistogramObserver,
    SparseMinMaxObserver,
    SparseMovingAvgObsFakeQuantize,
)
from .....nn.quantization import (
    get_default_spconv_qconfig_mapping,
    get_default_spconv_trt_ptq_qconfig,
    get_default_spconv_trt_qat_qconfig,
)

__all__ = [
    "SparseFusedMovingAvgObsFakeQuantize",
    "SparseHistogramObserver",
    "SparseMinMaxObserver",
    "SparseMovingAvgObsFakeQuantize",
    "default_symmetric_spconv_ptq_qconfig",
    "default_symmetric_spconv_qat_qconfig",
    "get_default_spconv_qconfig_mapping",
    "get_default_spconv_trt_ptq_qconfig",
    "get_default_spconv_trt_qat_qconfig",
]
