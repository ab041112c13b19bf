"""Stand-in for spconv 2.3.8, and for `import spconv` of 1.x code.

Differences from spconv are listed in docs/migration/spconv.md. Classes come from `sparse3d.nn`;
what is changed here are spconv's rules that trained weights and unmodified code stand on: max
pools start from 0, a stride on a submanifold layer is ignored, indices may repeat.
"""

from . import constants, conv, core, functional, modules, ops, pytorch, utils
from ._legacy import (
    SparseConv1d,
    SparseConv2d,
    SparseConv3d,
    SparseConv4d,
    SparseConvTensor,
    SparseConvTranspose1d,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseConvTranspose4d,
    SparseInverseConv1d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SparseInverseConv4d,
    SparseSequential,
    SubMConv1d,
    SubMConv2d,
    SubMConv3d,
    SubMConv4d,
)
from .core import AlgoHint, ConvAlgo
from .pytorch import (
    AddTable,
    ConcatTable,
    Identity,
    JoinTable,
    RemoveGrid,
    SparseAvgPool1d,
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseGlobalAvgPool,
    SparseGlobalMaxPool,
    SparseMaxPool1d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    SparseMaxPool4d,
    SparseModule,
    ToDense,
    identity,
    pool,
    spatial,
    tables,
)

__version__ = "2.3.8"
SPCONV_VERSION_NUMBERS = [2, 3, 8]

# 1.x had these at the top.
_ALIASES = {
    f"spconv.{name}": f"pytorch.{name}" for name in ("identity", "pool", "spatial", "tables")
}

__all__ = [
    "SPCONV_VERSION_NUMBERS",
    "AddTable",
    "AlgoHint",
    "ConcatTable",
    "ConvAlgo",
    "Identity",
    "JoinTable",
    "RemoveGrid",
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxPool",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
    "SparseModule",
    "SparseSequential",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
    "ToDense",
    "__version__",
    "constants",
    "conv",
    "core",
    "functional",
    "identity",
    "modules",
    "ops",
    "pool",
    "pytorch",
    "spatial",
    "tables",
    "utils",
]
