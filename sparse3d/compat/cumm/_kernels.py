"""What of cumm writes, compiles and runs CUDA kernels, by name."""

from __future__ import annotations

from .._refusal import modules_below, refused

NAMES = {
    "common": (
        "CUDALibs", "CompileInfo", "CppTimer", "GemmBasic", "GemmBasicHost", "GemmBasicKernel",
        "TensorView", "TensorViewCPU", "TensorViewKernel", "TensorViewNVRTC", "ThrustLib",
    ),
    "nvrtc": ("CummNVRTCModule", "CummNVRTCModuleBase", "get_cudadevrt_path"),
    "conv.kernel": ("ConvKernel",),
    "conv.main": (
        "ConvBwdWeight", "ConvFwdAndBwdInput", "ConvMainUnitTest", "gen_gemm_kernels",
        "gen_gemm_params",
    ),
    "conv.params": ("ConvProblem",),
    "gemm.constants": ("NVRTCConstants", "NVRTCMode"),
    "gemm.kernel": ("GemmKernel",),
    "gemm.layout": ("ColumnMajor", "RowMajor", "TensorGeneric"),
    "gemm.main": ("GemmAlgoParams", "GemmMainUnitTest", "gen_gemm_kernels", "gen_gemm_params"),
}  # fmt: skip
WAY_OUT = "layers choose their kernels by themselves"


def _made() -> dict[str, dict[str, object]]:
    return {
        place: {name: refused(f"cumm.{place}.{name}", WAY_OUT) for name in names}
        for place, names in NAMES.items()
    }


BELOW = modules_below("sparse3d.compat.cumm", _made())
common, nvrtc = BELOW[:2]
