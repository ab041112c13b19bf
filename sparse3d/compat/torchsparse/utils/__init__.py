"""`torchsparse.utils`."""

from . import quantize, tensor_cache, utils
from .to_dense import to_dense
from .utils import make_divisible, make_ntuple, make_tensor

__all__ = [
    "make_divisible",
    "make_ntuple",
    "make_tensor",
    "quantize",
    "tensor_cache",
    "to_dense",
    "utils",
]
