"""`spconv.pytorch.quantization.graph`."""

from .....nn.quantization import remove_conv_add_dq, transform_qdq

__all__ = ["remove_conv_add_dq", "transform_qdq"]
