"""The same kernels as CUDA: nvcc must take them. Nothing runs here; no GPU is needed."""

import shutil
import subprocess
from pathlib import Path

import metal_emu
import pytest
from metal_emu import installed

NVCC = shutil.which("nvcc")
INCLUDE = Path(metal_emu.__file__).parent / "include"
CASES = [
    ("scan", ""),
    ("coordinates", "#define SP_COLS 4\n"),
    ("kernel_map", "#define SP_COLS 3\n"),
    ("conv_plan", ""),
    ("conv", "#define SP_ELEM half\n#define SP_VEC 4\n#define SP_BK 32\n"),
    ("conv", "#define SP_BACKWARD 1\n"),
    ("conv_grad", "#define SP_ELEM bfloat\n"),
    ("norm", ""),
    ("pool", "#define SP_ELEM half\n"),
    ("segment", "#define SP_WEIGHTED 1\n"),
    ("voxelize", ""),
    ("dense", ""),
]


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize(("stem", "macros"), CASES)
def test_nvcc_compiles(stem: str, macros: str, tmp_path: Path) -> None:
    with installed():
        from sparse3d.metal import _shader

        text = macros + _shader.source(stem)
    source = tmp_path / f"{stem}.cu"
    source.write_text(metal_emu.cuda_source(text, metal_emu.parse_kernels(text)))
    target = ["-cubin", "-o", str(tmp_path / "out.cubin")]
    flags = ["-std=c++17", "-arch=sm_90", "-w", "-I", str(INCLUDE)]
    done = subprocess.run(
        [str(NVCC), *flags, *target, str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]
