"""`spconv.pytorch.quantization.qmapping`."""

from .....nn.quantization import get_spconv_fmod_to_qat_mapping, get_spconv_qat_to_static_mapping

__all__ = ["get_spconv_fmod_to_qat_mapping", "get_spconv_qat_to_static_mapping"]
