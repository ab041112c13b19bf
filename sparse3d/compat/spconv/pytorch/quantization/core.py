"""`spconv.pytorch.quantization.core`."""

from .....nn.quantization import quantize_per_tensor, quantized_add

__all__ = ["quantize_per_tensor", "quantized_add"]
