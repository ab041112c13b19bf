"""Stand-in for torchsparse 2.1.0: coordinates (batch, x, y, z), divided by the stride.

Version 1.4 is `sparse3d.compat.torchsparse_1_4`. Differences from the peer are listed in
docs/migration/torchsparse.md.
"""

from . import backbones, backend, backends, nn, tensor, utils
from .operators import cat, generative_add
from .tensor import PointTensor, SparseTensor
from .utils import collate
from .utils.tune import tune
from .version import __version__

__all__ = [
    "PointTensor",
    "SparseTensor",
    "__version__",
    "backbones",
    "backend",
    "backends",
    "cat",
    "collate",
    "generative_add",
    "nn",
    "tensor",
    "tune",
    "utils",
]
