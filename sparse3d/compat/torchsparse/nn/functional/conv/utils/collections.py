"""`torchsparse.nn.functional.conv.utils.collections`."""

from ..conv_config import AttributeDict

__all__ = ["AttributeDict"]
