"""CPU kernels of the sparse engine: native code behind a plain C ABI.

Importing this package attaches the kernels to their operators; it raises `BackendUnavailable` where
the native library is missing, and the torch references serve instead.
"""

from . import _library as _library
from . import ball_query as ball_query
from . import conv as conv
from . import coordinates as coordinates
from . import dense as dense
from . import fps as fps
from . import graph as graph
from . import group as group
from . import index as index
from . import interpolate as interpolate
from . import kernel_map as kernel_map
from . import knn as knn
from . import norm as norm
from . import pool as pool
from . import segment as segment
from . import voxelize as voxelize
