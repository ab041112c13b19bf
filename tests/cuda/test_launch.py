"""Argument packing and grids against a driver that only writes down, on CPU tensors."""

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from sparse3d import _registry
from sparse3d.cuda import _driver, _shader, _tiles
from sparse3d.cuda._source import parse_kernels
from sparse3d.cuda._translate import LIST
from sparse3d.metal import _shader as seam

CPU = -1
"""What `Tensor.get_device` says of CPU tensors."""

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
MIXED = (
    HEAD
    + """kernel void k(device float* x [[buffer(0)]], constant uint& n [[buffer(1)]],
    constant float& scale [[buffer(2)]], device const int* rows [[buffer(3)]],
    constant int& low [[buffer(4)]], constant long* sizes [[buffer(5)]],
    uint i [[thread_position_in_grid]]) {}
"""
)


class Written:
    """A driver that keeps what it was asked to launch."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, Sequence[int]]] = []

    def launch(
        self, function: int, device: int, blocks: int, block: Sequence[int], packed: Any
    ) -> None:
        assert packed.lock.locked()
        self.launches.append((blocks, tuple(block)))


def kernel(text: str = MIXED, most: int = 1024) -> tuple[_shader.Kernel, Written]:
    driver = Written()
    return _shader.Kernel(driver, 7, most, CPU, parse_kernels(text)[0]), driver


def test_arguments_lie_as_c_lays_them() -> None:
    k, driver = kernel()
    x, rows = torch.zeros(4), torch.zeros(3, dtype=torch.int32)
    k.launch((x, 4, 0.5, rows, -3, [7, 8, 9]), (500,), (256, 1, 1))
    raw = k._packed.memory.raw
    assert len(raw) == 8 + 4 + 4 + 8 + 8 + 8 * LIST + 4
    assert struct.unpack_from("@PIfPi", raw) == (x.data_ptr(), 4, 0.5, rows.data_ptr(), -3)
    assert struct.unpack_from(f"@{LIST}q", raw, 32) == (7, 8, 9) + (0,) * (LIST - 3)
    assert struct.unpack_from("@I", raw, len(raw) - 4) == (500,)
    assert driver.launches == [(2, (256, 1, 1))]


def test_the_driver_is_told_where_the_arguments_lie() -> None:
    """A launch through the driver's own structures, read back as C reads them."""
    k, _ = kernel()
    packed, seen = k._packed, []

    def launched(config: int, function: int, none: None, extra: int) -> int:
        words = (ctypes.c_void_p * 5).from_address(extra)
        size = ctypes.c_size_t.from_address(words[3] or 0).value
        raw = ctypes.string_at(words[1] or 0, size)
        seen.append((words[0], words[2], words[4], raw, ctypes.string_at(config, 56), function))
        return 0

    driver = _driver.Driver.__new__(_driver.Driver)
    driver._launch = launched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 4096, raising=False)
        patch.setattr(torch._C, "_cuda_getDevice", lambda: CPU, raising=False)
        driver.launch(7, CPU, 5, (256, 1, 1), packed)
    kinds = (seen[0][0], seen[0][1], seen[0][2])
    assert kinds == (1, 2, None)  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
    assert seen[0][3] == packed.memory.raw[: k._layout.size]
    assert struct.unpack_from("@7IPPI", seen[0][4]) == (5, 1, 1, 256, 1, 1, 0, 4096, 0, 0)
    assert seen[0][5] == 7


def test_two_launches_do_not_mix() -> None:
    k, _ = kernel()
    x, rows = torch.zeros(4), torch.zeros(3, dtype=torch.int32)
    k.launch((x, 4, 0.5, rows, 1, list(range(LIST))), (1,), (32, 1, 1))
    k.launch((x, 9, 1.5, rows, 2, [5]), (1,), (32, 1, 1))
    assert struct.unpack_from(f"@{LIST}q", k._packed.memory.raw, 32) == (5,) + (0,) * (LIST - 1)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({1: 2**32}, ValueError, "k: scalars must fit 32 bits, got 4294967296"),
        ({4: -(2**31) - 1}, ValueError, "scalars must fit 32 bits"),
        ({0: torch.zeros(4, 4).T[:, 1:]}, ValueError, "must be contiguous, got strides"),
        ({3: 5}, TypeError, "k: needs a tensor, got int"),
    ],
)
def test_what_a_kernel_cannot_read_is_refused(
    change: dict[int, Any], error: type[Exception], message: str
) -> None:
    k, driver = kernel()
    args: list[Any] = [torch.zeros(4), 4, 0.5, torch.zeros(3, dtype=torch.int32), 1, [1]]
    with pytest.raises(TypeError, match="k: takes 6 arguments, got 5"):
        k.launch(args[:-1], (1,), (32, 1, 1))
    for position, value in change.items():
        args[position] = value
    with pytest.raises(error, match=message):
        k.launch(args, (1,), (32, 1, 1))
    assert driver.launches == []


WIDE = (
    HEAD
    + "kernel void k(device float* x [[buffer(0)]], uint2 i [[threadgroup_position_in_grid]]) {}"
)
DEEP = WIDE.replace("uint2", "uint3")


def test_a_series_changes_the_last_argument_alone() -> None:
    text = (
        HEAD
        + """kernel void k(device float* x [[buffer(0)]], constant long* sizes [[buffer(1)]],
    constant uint& out [[buffer(2)]], uint i [[thread_position_in_grid]]) {}
"""
    )
    k, driver = kernel(text)
    seen: list[bytes] = []
    driver.launch = lambda *_: seen.append(k._packed.memory.raw)  # type: ignore[method-assign]
    k.launch_each((torch.zeros(4), [7]), range(1, 4), (96,), (32, 1, 1))
    place = 8 + 8 * LIST
    assert [struct.unpack_from("@II", raw, place) for raw in seen] == [(i, 96) for i in (1, 2, 3)]
    assert len({raw[:place] for raw in seen}) == 1
    k.launch_each((torch.zeros(4), [7]), range(1, 1), (96,), (32, 1, 1))
    assert len(seen) == 3


def test_tensors_of_another_device_are_refused() -> None:
    k = _shader.Kernel(Written(), 7, 1024, 0, parse_kernels(WIDE)[0])
    with pytest.raises(TypeError, match="k: tensors must be on cuda:0, got cpu"):
        k.launch((torch.zeros(1),), (1, 1), (32, 1, 1))


def test_more_than_one_axis_is_numbered_along_x() -> None:
    """CUDA takes 65,535 blocks along y; rows are more."""
    for text, count in ((WIDE, (3, 100_000)), (DEEP, (3, 5, 70_000))):
        k, driver = kernel(text)
        k.launch((torch.zeros(1),), (128 * count[0], *count[1:]), (128, 1, 1))
        blocks = count[0] * count[1] * (count[2] if len(count) > 2 else 1)
        assert driver.launches == [(blocks, (128, 1, 1))]
        assert struct.unpack_from("@PII", k._packed.memory.raw)[1:] == count[:2]
    with pytest.raises(ValueError, match="blocks must number at most 2\\^31 - 1"):
        k.launch((torch.zeros(1),), (2**16, 2**16, 1), (1, 1, 1))


class Everything(_shader.CudaLauncher):
    """A launcher whose kernels are all the same one."""

    def __init__(self, made: _shader.Kernel) -> None:
        super().__init__(None, None, None)
        self.made = made

    def _kernel(self, *_: Any) -> _shader.Kernel:
        return self.made


@pytest.mark.parametrize(
    ("grid", "blocks", "block"),
    [
        ((1, 1), 1, (1, 256, 1)),
        ((3, 1000), 16, (4, 64, 1)),
        ((64, 10), 3, (64, 4, 1)),
        ((257, 2), 4, (256, 1, 1)),
    ],
)
def test_narrow_ranges_get_narrow_blocks(
    grid: tuple[int, int], blocks: int, block: tuple[int, int, int]
) -> None:
    """Every element of the range has a thread."""
    k, driver = kernel(WIDE.replace("threadgroup_position", "thread_position"))
    Everything(k).each(seam.library("scan"), "k", (torch.zeros(1),), grid)
    assert driver.launches == [(blocks, block)]
    across = [-(-grid[0] // block[0]), -(-grid[1] // block[1])]
    assert across[0] * across[1] == blocks
    assert struct.unpack_from("@PIIII", k._packed.memory.raw)[1:] == (*across, *grid)


def test_one_axis_is_cut_into_blocks_of_256() -> None:
    flat = (
        HEAD + "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {}"
    )
    for most, expected in ((1024, (4, (256, 1, 1))), (64, (16, (64, 1, 1)))):
        k, driver = kernel(flat, most)
        Everything(k).each(seam.library("scan"), "k", (torch.zeros(1),), (1000,))
        assert driver.launches == [expected]


def test_groups_too_large_for_the_gpu_are_refused() -> None:
    k, driver = kernel(WIDE, 128)
    with pytest.raises(RuntimeError, match="needs threadgroups of 256, this GPU allows 128"):
        Everything(k).groups(seam.library("scan"), "k", (torch.zeros(1),), (1, 1), 256)
    assert driver.launches == []


def test_the_ops_have_the_kernels_of_metal() -> None:
    """The same functions, convolution and plain batch norm apart, which have better ones there; the
    backend itself is asked for on a GPU alone."""
    from sparse3d.metal import conv, coordinates, fps, kernel_map, pool, voxelize  # noqa: F401

    shared = [op for op in _registry._ops.values() if "metal" in op.kernels]
    for op in shared:
        if not op.name.startswith(("conv", "batch_norm_train", "batch_norm_grad")):
            assert op.kernels["cuda"] is op.kernels["metal"], op.name
    assert len(shared) > 15


def test_wide_tiles_are_chosen_where_a_block_holds_them() -> None:
    for shared, width in ((0, 128), (99 << 10, 128), (227 << 10, 256)):
        tile = _tiles.conv_tile(2000, 128, 256, 256, 1, 1, shared)
        assert tile.bn == width
        assert 2 * tile.stages * tile.bk * (128 + tile.bn) <= max(shared, 96 << 10)
    for rows, channels, terms in ((64, 256, 1), (128, 128, 1), (128, 256, 3)):
        assert _tiles.conv_tile(2000, rows, channels, channels, 1, terms, 227 << 10).bn == 128
