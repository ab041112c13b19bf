"""`spconv.core_cc`: the peer's compiled half. Voxel generators and the bases of its callbacks work;
its operators and tuners are refused when they are used: `spconv.pytorch.ops` has ours."""

from __future__ import annotations

from typing import Any

from .._refusal import modules_below, refused
from . import utils

__all__ = ["csrc", "cumm"]

OPERATORS = "spconv.pytorch.ops has the operators on torch tensors"
TUNERS = "layers choose their kernels by themselves"


class ExternalAllocator:
    """Base of allocators that the peer's operators call; ours call none."""


class ExternalSpconvMatmul:
    """Base of products that the peer's operators call; ours call none."""


class BoxOps:
    """Boxes; `spconv.utils` has the functions, on numpy arrays."""

    @staticmethod
    def has_boost() -> bool:
        """Whether rotated boxes can be intersected: always."""
        return True


def _refused(place: str, way_out: str, *names: str) -> dict[str, Any]:
    return {name: refused(f"spconv.core_cc.{place}.{name}", way_out) for name in names}


def _table() -> dict[str, dict[str, Any]]:
    voxels = "csrc.sparse.all"
    convops = "csrc.sparse.convops"
    table: dict[str, dict[str, Any]] = {"csrc": {}, "csrc.hash": {}, "csrc.sparse": {}}
    table["csrc.hash.core"] = _refused(
        "csrc.hash.core", "spconv.pytorch.hash.HashTable works", "HashTable"
    )
    table[voxels] = _refused(voxels, OPERATORS, "SpconvOps")
    for axes in range(1, 5):
        on_gpu, on_cpu = (getattr(utils, f"Point2Voxel{kind}{axes}d") for kind in ("GPU", "CPU"))
        table[f"{voxels}.ops{axes}d"] = {"Point2Voxel": on_gpu}
        table[f"{voxels}.ops_cpu{axes}d"] = {"Point2VoxelCPU": on_cpu}
    table["csrc.sparse.alloc"] = {"ExternalAllocator": ExternalAllocator}
    table["csrc.sparse.inference"] = _refused("csrc.sparse.inference", OPERATORS, "InferenceOps")
    table[convops] = {
        "ExternalSpconvMatmul": ExternalSpconvMatmul,
        **_refused(convops, TUNERS, "ConvTuneResult", "GemmTuneResult"),
    }
    table[f"{convops}.spops"] = _refused(f"{convops}.spops", OPERATORS, "ConvGemmOps")
    for module, name in (("convops", "ConvTunerSimple"), ("gemmops", "GemmTunerSimple")):
        table[f"{convops}.{module}"] = _refused(f"{convops}.{module}", TUNERS, name)
    table["csrc.utils"] = {}
    table["csrc.utils.boxops"] = {"BoxOps": BoxOps}
    way_out = "sparse3d.data reads and writes clouds"
    table["csrc.utils.pcc"] = _refused("csrc.utils.pcc", way_out, "PointCloudCompress")
    table |= {"cumm": {}, "cumm.gemm": {}, "cumm.conv": {}}
    table["cumm.common"] = _refused("cumm.common", TUNERS, "CompileInfo")
    table["cumm.gemm.main"] = _refused("cumm.gemm.main", TUNERS, "GemmMainUnitTest")
    table["cumm.conv.main"] = _refused("cumm.conv.main", TUNERS, "ConvMainUnitTest")
    return table


_BELOW = modules_below(__name__, _table())
csrc = next(module for module in _BELOW if module.__name__.endswith("core_cc.csrc"))
cumm = next(module for module in _BELOW if module.__name__.endswith("core_cc.cumm"))
