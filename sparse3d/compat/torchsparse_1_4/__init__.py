"""Stand-in for torchsparse 1.4.0: coordinates (x, y, z, batch), multiples of the stride.

The layers are those of `sparse3d.compat.torchsparse`, which read the convention off the tensor.
Differences from the peer are listed in docs/migration/torchsparse.md.
"""

from ..torchsparse import backends
from ..torchsparse.operators import cat
from . import backbones, backend, nn, tensor, utils
from .tensor import PointTensor, SparseTensor
from .version import __version__

__all__ = [
    "PointTensor",
    "SparseTensor",
    "__version__",
    "backbones",
    "backend",
    "backends",
    "cat",
    "nn",
    "tensor",
    "utils",
]
