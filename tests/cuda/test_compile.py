"""The Metal sources as CUDA: NVRTC and nvcc must take every one. No GPU is needed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sparse3d import _registry
from sparse3d.cuda import _nvrtc
from sparse3d.cuda._source import KernelSource, parse_kernels
from sparse3d.cuda._translate import LIST, cuda_source, hidden
from sparse3d.metal import _shader

NVCC = shutil.which("nvcc")
NVCC_TARGETS = (80, 90)
CASES = [
    ("scan", {}),
    ("sort", {}),
    ("coordinates", {"SP_COLS": 4}),
    ("coordinates", {"SP_COLS": 2}),
    ("kernel_map", {"SP_COLS": 3}),
    ("kernel_map", {"SP_COLS": 5}),
    ("conv_plan", {}),
    ("conv", {"SP_ELEM": "half", "SP_VEC": 4, "SP_BK": 32}),
    ("conv", {"SP_BACKWARD": 1, "SP_BN": 24}),
    ("conv_grad", {"SP_ELEM": "bfloat"}),
    ("norm", {"SP_ELEM": "bfloat"}),
    ("pool", {"SP_ELEM": "half"}),
    ("segment", {"SP_WEIGHTED": 1, "SP_ELEM": "half"}),
    ("voxelize", {"SP_COLS": 4, "SP_ELEM": "bfloat"}),
    ("dense", {"SP_COLS": 4, "SP_ELEM": "half"}),
    ("fps", {}),
    ("knn", {"SP_SLOTS": 2, "SP_METRIC": 1}),
    ("ball_query", {"SP_SLOTS": 4}),
    ("index", {}),
    ("group", {"SP_ELEM": "half"}),
]


def translated(stem: str, macros: dict[str, object]) -> str:
    text = _shader.library(stem, **macros).text()
    return cuda_source(text, parse_kernels(text))


@pytest.fixture(scope="module")
def compiler() -> _nvrtc.Compiler:
    try:
        return _nvrtc.compiler()
    except _registry.BackendUnavailable as error:
        pytest.skip(str(error))


def test_every_source_is_listed() -> None:
    listed = {stem for stem, _ in CASES}
    assert listed == {f.stem for f in _shader._FOLDER.glob("*.metal")} - {"common"}


@pytest.mark.parametrize(("stem", "macros"), CASES, ids=str)
def test_nvrtc_compiles(stem: str, macros: dict[str, object], compiler: _nvrtc.Compiler) -> None:
    """Machine code with an entry for every kernel, for a Hopper GPU."""
    image = compiler.compile(translated(stem, macros), "sm_90")
    assert image[:4] == b"\x7fELF"
    for kernel in parse_kernels(_shader.source(stem)):
        assert f"{kernel.name}_entry".encode() in image


@pytest.mark.skipif(NVCC is None, reason="nvcc: there is none on the path (CUDA 11.8 or later)")
@pytest.mark.parametrize(("stem", "macros"), CASES, ids=str)
def test_nvcc_compiles(stem: str, macros: dict[str, object], tmp_path: Path) -> None:
    """Machine code with an entry for every kernel, for Ampere and for Hopper GPUs."""
    source, made = tmp_path / f"{stem}.cu", tmp_path / f"{stem}.fatbin"
    source.write_text(translated(stem, macros))
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in NVCC_TARGETS]
    flags = ["-std=c++17", "-w", "-fatbin", "-no-compress", *targets]
    command = [str(NVCC), *flags, "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    image = made.read_bytes()
    assert image.count(b"\x7fELF") == len(NVCC_TARGETS)
    for kernel in parse_kernels(_shader.source(stem)):
        assert image.count(f".text.{kernel.name}_entry".encode()) >= len(NVCC_TARGETS)


def test_a_wrong_source_says_where(compiler: _nvrtc.Compiler) -> None:
    broken = translated("scan", {}).replace("counts[group.y", "no_such_name[group.y")
    with pytest.raises(SyntaxError, match=r"scan\.metal\(\d+\).*no_such_name"):
        compiler.compile(broken, "sm_90")


def test_newer_gpus_get_ptx_and_older_ones_a_reason(compiler: _nvrtc.Compiler) -> None:
    newest = compiler.architectures[-1]
    assert compiler.target(newest) == f"sm_{newest}"
    assert compiler.target(990) == f"compute_{newest}"
    assert b".target" in compiler.compile(translated("scan", {}), compiler.target(990))
    with pytest.raises(RuntimeError, match="the GPU must be of capability"):
        compiler.target(30)


def kernel(text: str) -> KernelSource:
    return parse_kernels(text)[0]


FLAT = """#include <metal_stdlib>
using namespace metal;
kernel void k(device const float* x [[buffer(0)]], constant uint& n [[buffer(1)]],
              constant long* sizes [[buffer(2)]], uint i [[thread_position_in_grid]]) {}
"""


def test_entries_take_scalars_and_lists_by_value() -> None:
    made = cuda_source(FLAT, [kernel(FLAT)])
    listed = f"const __grid_constant__ metal::msl_list<long, {LIST}> sizes"
    assert f"k_entry(const float* x, uint n, {listed}, uint msl_threads_x)" in made
    assert "#include" not in made.split("extern")[-1]


@pytest.mark.parametrize(
    ("built_in", "told"),
    [
        ("uint i [[threadgroup_position_in_grid]]", ()),
        ("uint i [[thread_position_in_grid]]", ("threads_x",)),
        ("uint2 i [[threadgroup_position_in_grid]]", ("groups_x", "groups_y")),
        (
            "uint2 i [[thread_position_in_grid]]",
            ("groups_x", "groups_y", "threads_x", "threads_y"),
        ),
    ],
)
def test_kernels_are_told_their_grid(built_in: str, told: tuple[str, ...]) -> None:
    """A thread beyond what was asked for must return: Metal has none, and kernels do not look."""
    text = FLAT.replace("uint i [[thread_position_in_grid]]", built_in)
    assert hidden(kernel(text)) == told
    made = cuda_source(text, [kernel(text)])
    for name in ("threads_x", "threads_y"):
        assert (f">= msl_{name}) return;" in made) == (name in told)
