"""`spconv.pytorch.quantization.graph`."""

from .....nn.quantization import is_dequantize_node, remove_conv_add_dq, transform_qdq

__all__ = ["is_dequantize_node", "remove_conv_add_dq", "transform_qdq"]
