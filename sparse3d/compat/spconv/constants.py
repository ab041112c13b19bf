"""`spconv.constants`: settings that spconv code reads or sets; sparse3d follows torch's own."""

from pathlib import Path

from ...nn.constants import (
    ALL_WEIGHT_IS_KRSC,
    FILTER_HWIO,
    SAVED_WEIGHT_LAYOUT,
    SPCONV_ALLOW_TF32,
)

PACKAGE_NAME = "spconv"
PACKAGE_ROOT = Path(__file__).parent
NDIM_DONT_CARE = 3
DISABLE_JIT = True
EDITABLE_INSTALLED = False
SPCONV_BWD_SPLITK = [1, 2, 4, 8, 16, 32, 64]
SPCONV_CPP_GEMM = True
SPCONV_CPP_INDICE_PAIRS = True
SPCONV_CPP_INDICE_PAIRS_IGEMM = False
SPCONV_DEBUG_CPP_ONLY = False
SPCONV_DEBUG_NVRTC_KERNELS = False
SPCONV_DEBUG_SAVE_PATH = ""
SPCONV_DEBUG_WEIGHT = False
SPCONV_DIRECT_TABLE_HASH_SIZE_SCALE = 1.1
SPCONV_DO_SORT = True
SPCONV_FX_TRACE_MODE = False
SPCONV_INT8_DEBUG = False
SPCONV_NVRTC_MODE = ""
SPCONV_USE_DIRECT_TABLE = True


class AllocKeys:
    """Names under which spconv's C++ half asks its allocator for tensors."""

    DFilters = "DFilters"
    DIn = "DIn"
    Features = "Features"
    Filters = "Filters"
    HashKOrKV = "HashKOrKV"
    HashV = "HashV"
    IndiceNumPerLoc = "IndiceNumPerLoc"
    IndicePairsUniq = "IndicePairsUniq"
    IndicePairsUniqBackup = "IndicePairsUniqBackup"
    InpBuffer = "InpBuffer"
    MaskArgSort = "MaskArgSort"
    MaskArgSortBwd = "MaskArgSortBwd"
    MaskOutputFwd = "MaskOutputFwd"
    OutBp = "OutBp"
    OutBuffer = "OutBuffer"
    OutFeatures = "OutFeatures"
    OutIndices = "OutIndices"
    PairBwd = "PairBwd"
    PairFwd = "PairFwd"
    PairMask = "PairMask"
    PairMaskBwd = "PairMaskBwd"
    ThrustTemp = "ThrustTemp"
    TightUniqueCount = "TightUniqueCount"


__all__ = [
    "ALL_WEIGHT_IS_KRSC",
    "DISABLE_JIT",
    "EDITABLE_INSTALLED",
    "FILTER_HWIO",
    "NDIM_DONT_CARE",
    "PACKAGE_NAME",
    "PACKAGE_ROOT",
    "SAVED_WEIGHT_LAYOUT",
    "SPCONV_ALLOW_TF32",
    "SPCONV_BWD_SPLITK",
    "SPCONV_CPP_GEMM",
    "SPCONV_CPP_INDICE_PAIRS",
    "SPCONV_CPP_INDICE_PAIRS_IGEMM",
    "SPCONV_DEBUG_CPP_ONLY",
    "SPCONV_DEBUG_NVRTC_KERNELS",
    "SPCONV_DEBUG_SAVE_PATH",
    "SPCONV_DEBUG_WEIGHT",
    "SPCONV_DIRECT_TABLE_HASH_SIZE_SCALE",
    "SPCONV_DO_SORT",
    "SPCONV_FX_TRACE_MODE",
    "SPCONV_INT8_DEBUG",
    "SPCONV_NVRTC_MODE",
    "SPCONV_USE_DIRECT_TABLE",
    "AllocKeys",
]
