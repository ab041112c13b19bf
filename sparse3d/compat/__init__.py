"""Stand-ins for the libraries that third-party code imports.

`install("spconv")` makes `import spconv.pytorch` give sparse3d's stand-in; each is an ordinary
package too: `import sparse3d.compat.spconv.pytorch as spconv`.
"""

from typing import TYPE_CHECKING

from sparse3d._lazy import submodules

from ._install import available, install, uninstall

__all__ = ["available", "install", "uninstall"]

if TYPE_CHECKING:
    from . import cumm as cumm
    from . import flex_gemm as flex_gemm
    from . import knn_cuda as knn_cuda
    from . import minkowski as minkowski
    from . import mps_pointops as mps_pointops
    from . import pointnet2_ops as pointnet2_ops
    from . import pointops as pointops
    from . import pointops2 as pointops2
    from . import pyg as pyg
    from . import pytorch3d as pytorch3d
    from . import spconv as spconv
    from . import torch_cluster as torch_cluster
    from . import torch_scatter as torch_scatter
    from . import torchsparse as torchsparse
    from . import torchsparse_1_2 as torchsparse_1_2
    from . import torchsparse_1_4 as torchsparse_1_4
else:
    _LATE = (
        "cumm",
        "flex_gemm",
        "knn_cuda",
        "minkowski",
        "mps_pointops",
        "pointnet2_ops",
        "pointops",
        "pointops2",
        "pyg",
        "pytorch3d",
        "spconv",
        "torch_cluster",
        "torch_scatter",
        "torchsparse",
        "torchsparse_1_2",
        "torchsparse_1_4",
    )
    __getattr__, __dir__ = submodules(__name__, _LATE)
