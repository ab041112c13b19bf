"""`torchsparse.nn.functional.conv.hash`."""

from .hash import sphash
from .query import convert_transposed_out_in_map, sphashquery

__all__ = ["convert_transposed_out_in_map", "sphash", "sphashquery"]
