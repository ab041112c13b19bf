"""Stand-in for MinkowskiEngine 0.5.4.

Coordinates, kernels, state_dict and sharing rules are the peer's; differences are listed in
docs/migration/minkowski.md.
"""

from pathlib import Path

from . import MinkowskiFunctional, MinkowskiOps, modules, utils
from ._backend._C import (
    BroadcastMode,
    ConvolutionMode,
    CoordinateMapKey,
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    PoolingMode,
    RegionType,
    cuda_version,
    cudart_version,
    get_gpu_memory_info,
    is_cuda_available,
)
from ._shared_names import share
from .diagnostics import (
    print_diagnostics,
)
from .MinkowskiBroadcast import (
    MinkowskiBroadcast,
    MinkowskiBroadcastAddition,
    MinkowskiBroadcastConcatenation,
    MinkowskiBroadcastFunction,
    MinkowskiBroadcastMultiplication,
)
from .MinkowskiChannelwiseConvolution import (
    MinkowskiChannelwiseConvolution,
)
from .MinkowskiCommon import (
    MinkowskiModuleBase,
    convert_to_int_list,
    convert_to_int_tensor,
)
from .MinkowskiConvolution import (
    MinkowskiConvolution,
    MinkowskiConvolutionFunction,
    MinkowskiConvolutionTranspose,
    MinkowskiConvolutionTransposeFunction,
    MinkowskiGenerativeConvolutionTranspose,
)
from .MinkowskiCoordinateManager import (
    CoordinateManager,
    CoordsManager,
    set_coordinate_map_type,
    set_gpu_allocator,
    set_memory_manager_backend,
)
from .MinkowskiInterpolation import (
    MinkowskiInterpolation,
    MinkowskiInterpolationFunction,
)
from .MinkowskiKernelGenerator import (
    KernelGenerator,
    KernelRegion,
    convert_region_type,
    get_kernel_volume,
)
from .MinkowskiNetwork import (
    MinkowskiNetwork,
)
from .MinkowskiNonlinearity import (
    MinkowskiAdaptiveLogSoftmaxWithLoss,
    MinkowskiAlphaDropout,
    MinkowskiCELU,
    MinkowskiDropout,
    MinkowskiELU,
    MinkowskiGELU,
    MinkowskiHardshrink,
    MinkowskiHardsigmoid,
    MinkowskiHardswish,
    MinkowskiHardtanh,
    MinkowskiLeakyReLU,
    MinkowskiLogSigmoid,
    MinkowskiLogSoftmax,
    MinkowskiPReLU,
    MinkowskiReLU,
    MinkowskiReLU6,
    MinkowskiRReLU,
    MinkowskiSELU,
    MinkowskiSigmoid,
    MinkowskiSiLU,
    MinkowskiSinusoidal,
    MinkowskiSoftmax,
    MinkowskiSoftmin,
    MinkowskiSoftplus,
    MinkowskiSoftshrink,
    MinkowskiSoftsign,
    MinkowskiTanh,
    MinkowskiTanhshrink,
    MinkowskiThreshold,
)
from .MinkowskiNormalization import (
    MinkowskiBatchNorm,
    MinkowskiInstanceNorm,
    MinkowskiInstanceNormFunction,
    MinkowskiStableInstanceNorm,
    MinkowskiSyncBatchNorm,
)
from .MinkowskiOps import (
    MinkowskiLinear,
    MinkowskiStackCat,
    MinkowskiStackMean,
    MinkowskiStackSum,
    MinkowskiStackVar,
    MinkowskiToDenseTensor,
    MinkowskiToFeature,
    MinkowskiToSparseTensor,
    cat,
    dense_coordinates,
    mean,
    to_sparse,
    to_sparse_all,
    var,
)
from .MinkowskiOps import _sum as sum
from .MinkowskiPooling import (
    MinkowskiAvgPooling,
    MinkowskiDirectMaxPoolingFunction,
    MinkowskiGlobalAvgPooling,
    MinkowskiGlobalMaxPooling,
    MinkowskiGlobalPooling,
    MinkowskiGlobalPoolingFunction,
    MinkowskiGlobalSumPooling,
    MinkowskiLocalPoolingFunction,
    MinkowskiLocalPoolingTransposeFunction,
    MinkowskiMaxPooling,
    MinkowskiPoolingTranspose,
    MinkowskiSumPooling,
)
from .MinkowskiPruning import (
    MinkowskiPruning,
    MinkowskiPruningFunction,
)
from .MinkowskiSparseTensor import (
    SparseTensor,
)
from .MinkowskiTensor import (
    SparseTensorOperationMode,
    SparseTensorQuantizationMode,
    clear_global_coordinate_manager,
    global_coordinate_manager,
    set_global_coordinate_manager,
    set_sparse_tensor_operation_mode,
    sparse_tensor_operation_mode,
)
from .MinkowskiTensorField import (
    TensorField,
)
from .MinkowskiUnion import (
    MinkowskiUnion,
    MinkowskiUnionFunction,
)
from .sparse_matrix_functions import (
    MinkowskiSPMMAverageFunction,
    MinkowskiSPMMFunction,
    spmm,
    spmm_average,
)

share(__name__)

__version__ = "0.5.4"
file_dir = str(Path(__file__).parent)

# The peer puts its own folder on the path: its modules are importable by their bare names.
_ALIASES = {"MinkowskiEngineBackend": "_backend", "MinkowskiEngineBackend._C": "_backend._C"} | {
    name: name
    for name in (
        "MinkowskiBroadcast",
        "MinkowskiChannelwiseConvolution",
        "MinkowskiCommon",
        "MinkowskiConvolution",
        "MinkowskiCoordinateManager",
        "MinkowskiFunctional",
        "MinkowskiInterpolation",
        "MinkowskiKernelGenerator",
        "MinkowskiNetwork",
        "MinkowskiNonlinearity",
        "MinkowskiNormalization",
        "MinkowskiOps",
        "MinkowskiPooling",
        "MinkowskiPruning",
        "MinkowskiSparseTensor",
        "MinkowskiTensor",
        "MinkowskiTensorField",
        "MinkowskiUnion",
        "sparse_matrix_functions",
    )
}
# Names so plain that anything else of that name goes first.
_LAST_RESORTS = ("utils", "modules", "diagnostics")

__all__ = [
    "BroadcastMode",
    "ConvolutionMode",
    "CoordinateManager",
    "CoordinateMapKey",
    "CoordinateMapType",
    "CoordsManager",
    "GPUMemoryAllocatorType",
    "KernelGenerator",
    "KernelRegion",
    "MinkowskiAdaptiveLogSoftmaxWithLoss",
    "MinkowskiAlgorithm",
    "MinkowskiAlphaDropout",
    "MinkowskiAvgPooling",
    "MinkowskiBatchNorm",
    "MinkowskiBroadcast",
    "MinkowskiBroadcastAddition",
    "MinkowskiBroadcastConcatenation",
    "MinkowskiBroadcastFunction",
    "MinkowskiBroadcastMultiplication",
    "MinkowskiCELU",
    "MinkowskiChannelwiseConvolution",
    "MinkowskiConvolution",
    "MinkowskiConvolutionFunction",
    "MinkowskiConvolutionTranspose",
    "MinkowskiConvolutionTransposeFunction",
    "MinkowskiDirectMaxPoolingFunction",
    "MinkowskiDropout",
    "MinkowskiELU",
    "MinkowskiFunctional",
    "MinkowskiGELU",
    "MinkowskiGenerativeConvolutionTranspose",
    "MinkowskiGlobalAvgPooling",
    "MinkowskiGlobalMaxPooling",
    "MinkowskiGlobalPooling",
    "MinkowskiGlobalPoolingFunction",
    "MinkowskiGlobalSumPooling",
    "MinkowskiHardshrink",
    "MinkowskiHardsigmoid",
    "MinkowskiHardswish",
    "MinkowskiHardtanh",
    "MinkowskiInstanceNorm",
    "MinkowskiInstanceNormFunction",
    "MinkowskiInterpolation",
    "MinkowskiInterpolationFunction",
    "MinkowskiLeakyReLU",
    "MinkowskiLinear",
    "MinkowskiLocalPoolingFunction",
    "MinkowskiLocalPoolingTransposeFunction",
    "MinkowskiLogSigmoid",
    "MinkowskiLogSoftmax",
    "MinkowskiMaxPooling",
    "MinkowskiModuleBase",
    "MinkowskiNetwork",
    "MinkowskiOps",
    "MinkowskiPReLU",
    "MinkowskiPoolingTranspose",
    "MinkowskiPruning",
    "MinkowskiPruningFunction",
    "MinkowskiRReLU",
    "MinkowskiReLU",
    "MinkowskiReLU6",
    "MinkowskiSELU",
    "MinkowskiSPMMAverageFunction",
    "MinkowskiSPMMFunction",
    "MinkowskiSiLU",
    "MinkowskiSigmoid",
    "MinkowskiSinusoidal",
    "MinkowskiSoftmax",
    "MinkowskiSoftmin",
    "MinkowskiSoftplus",
    "MinkowskiSoftshrink",
    "MinkowskiSoftsign",
    "MinkowskiStableInstanceNorm",
    "MinkowskiStackCat",
    "MinkowskiStackMean",
    "MinkowskiStackSum",
    "MinkowskiStackVar",
    "MinkowskiSumPooling",
    "MinkowskiSyncBatchNorm",
    "MinkowskiTanh",
    "MinkowskiTanhshrink",
    "MinkowskiThreshold",
    "MinkowskiToDenseTensor",
    "MinkowskiToFeature",
    "MinkowskiToSparseTensor",
    "MinkowskiUnion",
    "MinkowskiUnionFunction",
    "PoolingMode",
    "RegionType",
    "SparseTensor",
    "SparseTensorOperationMode",
    "SparseTensorQuantizationMode",
    "TensorField",
    "__version__",
    "cat",
    "clear_global_coordinate_manager",
    "convert_region_type",
    "convert_to_int_list",
    "convert_to_int_tensor",
    "cuda_version",
    "cudart_version",
    "dense_coordinates",
    "get_gpu_memory_info",
    "get_kernel_volume",
    "global_coordinate_manager",
    "is_cuda_available",
    "mean",
    "modules",
    "print_diagnostics",
    "set_coordinate_map_type",
    "set_global_coordinate_manager",
    "set_gpu_allocator",
    "set_memory_manager_backend",
    "set_sparse_tensor_operation_mode",
    "sparse_tensor_operation_mode",
    "spmm",
    "spmm_average",
    "sum",
    "to_sparse",
    "to_sparse_all",
    "utils",
    "var",
]
