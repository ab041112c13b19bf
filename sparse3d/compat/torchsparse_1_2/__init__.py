"""Stand-in for torchsparse before 1.4 (1.0 to 1.2): coordinates (x, y, z, batch), multiples of the
stride, which is one integer; strided layers make floors, whatever the kernel.

The layers are those of `sparse3d.compat.torchsparse`, which read the convention off the tensor.
Differences from the peer are listed in docs/migration/torchsparse.md.
"""

from . import nn, operators, point_tensor, sparse_tensor, utils
from .operators import cat
from .point_tensor import PointTensor
from .sparse_tensor import SparseTensor

__version__ = "1.2.0"
__all__ = [
    "PointTensor",
    "SparseTensor",
    "__version__",
    "cat",
    "nn",
    "operators",
    "point_tensor",
    "sparse_tensor",
    "utils",
]
