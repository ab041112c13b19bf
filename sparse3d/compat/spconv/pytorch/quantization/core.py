"""`spconv.pytorch.quantization.core`."""

from .....nn.quantization import quantize_per_tensor

__all__ = ["quantize_per_tensor"]
