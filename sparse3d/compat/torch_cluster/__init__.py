"""Stand-in for torch_cluster 1.6.3: flat clouds and sorted batch vectors on any device.

| name | status | difference |
|---|---|---|
| fps | rule of the CPU build | random starts come from torch's generator |
| knn, knn_graph | ties by index | exactly k others, also among coincident points; any k |
| radius, radius_graph | first hits by index, as on CUDA | the CPU build's order is its tree's |
| nearest | ties by index | clouds are not rescaled first |
| grid_cluster, graclus_cluster, neighbor_sampler | same | torch's generator |
| random_walk | same where p = q = 1 | a step back has chance 1/p alone, in the peer 1/q too |

`torch.ops.torch_cluster.*` is there too, for code that calls it.
"""

from . import _ops as _ops
from .fps import fps
from .graclus import graclus_cluster
from .grid import grid_cluster
from .knn import knn, knn_graph
from .nearest import nearest
from .radius import radius, radius_graph
from .rw import random_walk
from .sampler import neighbor_sampler

__version__ = "1.6.3"

__all__ = [
    "__version__",
    "fps",
    "graclus_cluster",
    "grid_cluster",
    "knn",
    "knn_graph",
    "nearest",
    "neighbor_sampler",
    "radius",
    "radius_graph",
    "random_walk",
]
