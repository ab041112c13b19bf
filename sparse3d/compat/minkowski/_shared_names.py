"""Names that the peer's modules import from one another: others take them from either."""

from __future__ import annotations

import sys

__all__ = ["share"]

_HOMES = {
    "_backend._C": (
        "BroadcastMode CoordinateMapKey CoordinateMapType GPUMemoryAllocatorType "
        "MinkowskiAlgorithm RegionType"
    ),
    "MinkowskiBroadcast": "MinkowskiBroadcastAddition MinkowskiBroadcastMultiplication",
    "MinkowskiCommon": "convert_to_int_list convert_to_int_tensor get_minkowski_function",
    "MinkowskiCoordinateManager": "CoordinateManager",
    "MinkowskiKernelGenerator": "save_ctx",
    "MinkowskiPooling": "MinkowskiGlobalAvgPooling",
    "MinkowskiSparseTensor": "SparseTensor _get_coordinate_map_key",
    "MinkowskiTensor": (
        "COORDINATE_KEY_DIFFERENT_ERROR COORDINATE_MANAGER_DIFFERENT_ERROR "
        "SparseTensorOperationMode global_coordinate_manager set_global_coordinate_manager "
        "sparse_tensor_operation_mode"
    ),
    "MinkowskiTensorField": "TensorField",
}
_TENSORS = (
    "CoordinateMapType GPUMemoryAllocatorType MinkowskiAlgorithm SparseTensorOperationMode "
    "global_coordinate_manager set_global_coordinate_manager sparse_tensor_operation_mode"
)
_ALSO_IN = {
    "MinkowskiBroadcast": "RegionType _get_coordinate_map_key get_minkowski_function",
    "MinkowskiChannelwiseConvolution": "CoordinateMapKey RegionType",
    "MinkowskiConvolution": "get_minkowski_function",
    "MinkowskiCoordinateManager": "convert_to_int_tensor",
    "MinkowskiFunctional": "SparseTensor TensorField",
    "MinkowskiInterpolation": "get_minkowski_function",
    "MinkowskiKernelGenerator": "CoordinateManager",
    "MinkowskiNetwork": "SparseTensor",
    "MinkowskiNonlinearity": "SparseTensor TensorField",
    "MinkowskiNormalization": (
        "BroadcastMode MinkowskiBroadcastAddition MinkowskiBroadcastMultiplication "
        "MinkowskiGlobalAvgPooling TensorField get_minkowski_function"
    ),
    "MinkowskiOps": "COORDINATE_KEY_DIFFERENT_ERROR COORDINATE_MANAGER_DIFFERENT_ERROR",
    "MinkowskiPooling": "get_minkowski_function save_ctx",
    "MinkowskiPruning": "get_minkowski_function",
    "MinkowskiSparseTensor": _TENSORS,
    "MinkowskiTensorField": (
        f"{_TENSORS} COORDINATE_KEY_DIFFERENT_ERROR COORDINATE_MANAGER_DIFFERENT_ERROR"
    ),
    "utils.quantization": "convert_to_int_list",
    "utils.summary": "SparseTensor",
}


def share(package: str) -> None:
    """Put the names where the peer has them too.

    Args:
        package: full name of the stand-in, whose modules are imported.
    """
    where = {name: home for home, names in _HOMES.items() for name in names.split()}
    for place, names in _ALSO_IN.items():
        module = vars(sys.modules[f"{package}.{place}"])
        for name in names.split():
            module.setdefault(name, vars(sys.modules[f"{package}.{where[name]}"])[name])
