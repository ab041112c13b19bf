"""Names of spconv's and cumm's compiled halves: imports find them, and use of them refuses."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparse3d.compat

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("spconv") is not None,
    reason="a real spconv is installed here, and stand-ins give way to it",
)

REFUSED = [
    "spconv.algo.BestAlgoByProfile",
    "spconv.algo.BestConvAlgoByProfile",
    "spconv.algo.CONV",
    "spconv.algo.CONV_CPP",
    "spconv.algo.GEMM",
    "spconv.algo.GEMM_CPP",
    "spconv.algo.SimpleConv",
    "spconv.core_cc.csrc.hash.core.HashTable",
    "spconv.core_cc.csrc.sparse.all.SpconvOps",
    "spconv.core_cc.csrc.sparse.convops.ConvTuneResult",
    "spconv.core_cc.csrc.sparse.convops.GemmTuneResult",
    "spconv.core_cc.csrc.sparse.convops.convops.ConvTunerSimple",
    "spconv.core_cc.csrc.sparse.convops.gemmops.GemmTunerSimple",
    "spconv.core_cc.csrc.sparse.convops.spops.ConvGemmOps",
    "spconv.core_cc.csrc.sparse.inference.InferenceOps",
    "spconv.core_cc.csrc.utils.pcc.PointCloudCompress",
    "spconv.core_cc.cumm.common.CompileInfo",
    "spconv.core_cc.cumm.conv.main.ConvMainUnitTest",
    "spconv.core_cc.cumm.gemm.main.GemmMainUnitTest",
    "cumm.common.TensorView",
    "cumm.conv.kernel.ConvKernel",
    "cumm.conv.main.ConvMainUnitTest",
    "cumm.conv.main.gen_gemm_kernels",
    "cumm.conv.params.ConvProblem",
    "cumm.gemm.constants.NVRTCConstants",
    "cumm.gemm.kernel.GemmKernel",
    "cumm.gemm.main.GemmMainUnitTest",
    "cumm.nvrtc.CummNVRTCModule",
    "cumm.tensorview.Context",
    "cumm.tensorview.gemm.ConvAlgoDesp",
    "cumm.tensorview.gemm.ConvParams",
    "cumm.tensorview.gemm.GemmParams",
]


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    sparse3d.compat.install("spconv")
    yield
    sparse3d.compat.uninstall()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_here_refuses_use_and_not_import(name: str) -> None:
    module, _, leaf = name.rpartition(".")
    assert importlib.util.find_spec(module) is not None
    found = getattr(importlib.import_module(module), leaf)
    words = rf"{name.replace('.', '[.]')} must be left out with sparse3d, got a use of it; \w+"
    with pytest.raises(NotImplementedError, match=words):
        found(1, size=2)
    with pytest.raises(NotImplementedError, match=words):
        found.run_with_tuned_result  # noqa: B018

    class Mine(found):  # code that only defines a class of its own goes on
        pass

    with pytest.raises(NotImplementedError, match=words):
        Mine()


def test_statements_of_code_that_reads_names_only() -> None:
    lines = """
from cumm import dtypes, tensorview as tv
from cumm.constants import PACKAGE_ROOT
from cumm.conv.bases import KRSC, NCHW, NHWC, ConvIterAlgo, ConvLayout, ConvLayoutType, ConvOpType
from cumm.dtypes import get_npdtype_from_tvdtype
from cumm.gemm.algospec.core import GemmAlgo, ShuffleStrideType
from cumm.gemm.codeops import div_up, group_by
from cumm.gemm import kernel
from spconv.algo import AlgoHint, ConvAlgo
from spconv.core_cc.csrc.sparse.all import ops3d
from spconv.core_cc.csrc.sparse.alloc import ExternalAllocator
from spconv.core_cc.csrc.sparse.convops import ExternalSpconvMatmul
from spconv.core_cc.csrc.utils.boxops import BoxOps
from cumm.gemm.algospec.core import TensorOp, get_available_algo_str_from_arch
from cumm.gemm.algospec.core import get_min_arch_of_algo_str
from cumm.constants import CUMM_CPU_ONLY_BUILD, CUMM_MAXIMUM_NVRTC_CONV_NDIM
from cumm.tensorview import CUDAKernelTimer
from spconv.cppconstants import COMPILED_CUDA_GEMM_ARCHS, CPU_ONLY_BUILD, HAS_BOOST
from spconv.pytorch.cppcore import _TORCH_DTYPE_TO_TV, TorchAllocator, torch_tensor_to_tv
import torch, spconv.core_cc as _ext
"""
    names: dict[str, object] = {}
    exec(lines, names)  # as third-party files write it
    assert hasattr(names["_ext"], "cumm")
    evaluated = {
        "div_up(7, 2), div_up(8, 2)": (4, 4),
        "group_by(abs, [1, -1, 2])": {1: [1, -1], 2: [2]},
        "[op.value for op in ConvOpType]": [0, 1, 2],
        "ConvOpType(1).name": "kBackwardInput",
        "NHWC == KRSC, NCHW == NHWC, NCHW.is_channel_first()": (True, False, True),
        "ShuffleStrideType.ShuffleAC.value, GemmAlgo.Simt.value": ("SAC", "Simt"),
        "get_npdtype_from_tvdtype(tv.float16) is dtypes.float16": True,
        "_TORCH_DTYPE_TO_TV[torch.int64] is dtypes.int64": True,
        "torch_tensor_to_tv(torch.ones(2).half()).dtype == _TORCH_DTYPE_TO_TV[torch.half]": True,
        "TensorOp((8, 8, 4))[2], get_min_arch_of_algo_str('Turing')": (4, (7, 5)),
        "get_available_algo_str_from_arch((8, 0)), COMPILED_CUDA_GEMM_ARCHS": ([], []),
        "CUMM_CPU_ONLY_BUILD, HAS_BOOST, CUDAKernelTimer(True).enable": (True, True, False),
        "BoxOps.has_boost(), PACKAGE_ROOT.is_dir()": (True, True),
        "tv.gemm.Activation.ReLU == 'relu'": True,
    }
    for expression, wanted in evaluated.items():
        assert eval(expression, names) == wanted, expression


def test_voxel_generators_work_under_their_compiled_names() -> None:
    voxels = importlib.import_module("spconv.core_cc.csrc.sparse.all.ops_cpu3d").Point2VoxelCPU
    tv = importlib.import_module("cumm.tensorview")
    made = voxels([1, 1, 1], [0, 0, 0, 4, 4, 4], 3, 10, 5)
    points = np.array([[0.5, 0.5, 0.5], [3.5, 1.5, 0.5]], np.float32)
    _, indices, counts = made.point_to_voxel(tv.from_numpy(points))
    assert indices.numpy().tolist() == [[0, 0, 0], [0, 1, 3]]
    assert counts.numpy().tolist() == [1, 1]


def test_debug_data_is_kept_where_code_says(tmp_path: Path, monkeypatch: Any) -> None:
    save = importlib.import_module("spconv.debug_utils").spconv_save_debug_data
    constants = importlib.import_module("spconv.constants")
    save(torch.ones(2))  # nowhere
    monkeypatch.setattr(constants, "SPCONV_DEBUG_SAVE_PATH", str(tmp_path / "kept.pkl"))
    save((torch.ones(2, requires_grad=True), torch.zeros(1).int()))
    kept = pickle.loads((tmp_path / "kept.pkl").read_bytes())
    assert [part.tolist() for part in kept] == [[1.0, 1.0], [0]]
    save(torch.ones(3))
    assert pickle.loads((tmp_path / "kept.pkl").read_bytes()).tolist() == [1.0] * 3


def test_they_go_away_with_the_stand_in() -> None:
    assert "spconv.core_cc.csrc.sparse.all" in sys.modules
    assert "cumm.gemm.main" in sys.modules
    sparse3d.compat.uninstall()
    left = [name for name in sys.modules if name.split(".")[0] in ("spconv", "cumm")]
    assert [name for name in left if name.startswith("spconv")] == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("spconv.core_cc")
