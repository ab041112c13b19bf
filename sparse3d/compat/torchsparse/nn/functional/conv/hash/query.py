"""`torchsparse.nn.functional.conv.hash.query`."""

from ...hash import sphashquery
from ..conv import convert_transposed_out_in_map

__all__ = ["convert_transposed_out_in_map", "sphashquery"]
