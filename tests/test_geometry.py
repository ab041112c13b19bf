"""Pure integers of ``sparse3d.geometry`` against the oracle and against torch's own grids."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch

from sparse3d import geometry as ours
from sparse3d._cases.clouds import GEOMETRIES, GRID
from sparse3d._cases.clouds import Geometry as Described

BY_NDIM = {
    1: (torch.nn.Conv1d, torch.nn.ConvTranspose1d),
    2: (torch.nn.Conv2d, torch.nn.ConvTranspose2d),
    3: (torch.nn.Conv3d, torch.nn.ConvTranspose3d),
}


@pytest.mark.parametrize("described", GEOMETRIES, ids=lambda g: g.name)
def test_taps_and_grids(described: Described) -> None:
    grid, made = GRID[described.ndim], ours.Geometry(*described.numbers)
    assert ours.taps(described.kernel_size) == oracle.taps(described.kernel_size)
    assert made.volume == described.volume == len(ours.taps(described.kernel_size))
    down = ours.output_shape(grid, made)
    assert list(down) == oracle.output_shape(grid, *described.numbers)
    extra = [s - 1 for s in described.stride]
    up = ours.transposed_output_shape(grid, made, extra)
    assert list(up) == oracle.transposed_output_shape(grid, *described.numbers, extra)
    if described.ndim > 3:
        return
    kernel, stride, padding, dilation = described.numbers
    conv, transposed = BY_NDIM[described.ndim]
    x = torch.zeros(1, 1, *grid)
    torch_down = conv(1, 1, kernel, stride, padding, dilation)  # type: ignore[arg-type]
    assert tuple(torch_down(x).shape[2:]) == down
    torch_up = transposed(1, 1, kernel, stride, padding, extra, dilation=dilation)  # type: ignore[arg-type]
    assert tuple(torch_up(x).shape[2:]) == up


def test_submanifold_padding_centres_odd_kernels_and_refuses_even_ones() -> None:
    for kernel, dilation in (((3, 5, 1), (1, 2, 3)), ((7,), (1,))):
        found = ours.submanifold_padding(kernel, dilation)
        assert list(found) == oracle.submanifold_padding(kernel, dilation)
    with pytest.raises(ValueError, match=r"kernel_size must be odd on every axis .* got \[3, 2\]"):
        ours.submanifold_padding((3, 2), (1, 1))
    with pytest.raises(ValueError, match=r"got \[4, 3\]; use a SparseConv layer"):
        ours.submanifold_padding((4, 3), (1, 1))


@pytest.mark.parametrize(
    ("value", "minimum", "expected"),
    [
        (3, 1, (3, 3, 3)),
        ([1, 2, 3], 1, (1, 2, 3)),
        ((0,), 0, (0, 0, 0)),
        (torch.Size([2, 2, 2]), 1, (2, 2, 2)),
        (np.array([1, 2, 3]), 1, (1, 2, 3)),
        (range(1, 4), 1, (1, 2, 3)),
        (np.int64(4), 4, (4, 4, 4)),
    ],
)
def test_normalize(value: object, minimum: int, expected: tuple[int, ...]) -> None:
    assert ours.normalize("kernel_size", value, 3, minimum) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, r"stride must be >= 1 on every axis, got \[0, 0, 0\]"),
        ([1, 2], ValueError, r"stride must have 3 entries \(one an axis\), got \[1, 2\]"),
        ([1, 2, 3, 4], ValueError, r"stride must have 3 entries .*got \[1, 2, 3, 4\]"),
        ([1, 0, 1], ValueError, r"stride must be >= 1 on every axis, got \[1, 0, 1\]"),
        ([], ValueError, r"stride must have 3 entries \(one an axis\), got \[\]"),
        ("2", TypeError, "stride must be an integer or 3 integers, got '2'"),
        (1.5, TypeError, "stride must be an integer or 3 integers, got 1.5"),
        (True, TypeError, "stride must be an integer or 3 integers, got True"),
        ([1, 2, "3"], TypeError, "stride must be an integer or 3 integers"),
    ],
)
def test_normalize_refuses(value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ours.normalize("stride", value, 3, 1)  # type: ignore[arg-type]


def test_a_geometry_says_what_it_is() -> None:
    made = ours.Geometry((1, 1), (1, 1), (0, 0), (1, 1))
    assert made.is_pointwise
    assert made.ndim == 2
    assert made == ours.Geometry((1, 1), (1, 1), (0, 0), (1, 1))
    assert len({made, ours.Geometry((1, 1), (1, 1), (0, 0), (1, 1))}) == 1
    with pytest.raises(AttributeError):
        made.stride = (2, 2)  # type: ignore[misc]
    assert not ours.Geometry((1, 1), (1, 1), (0, 1), (1, 1)).is_pointwise
    assert not ours.Geometry((1, 1), (1, 1), (1, 1), (1, 1)).is_pointwise
    assert not ours.Geometry((1, 1), (2, 2), (0, 0), (1, 1)).is_pointwise
    assert not ours.Geometry((1, 2), (1, 1), (0, 0), (1, 1)).is_pointwise
    assert not ours.Geometry((1, 1), (1, 2), (0, 0), (1, 1)).is_pointwise
    assert str(made) == "kernel_size=[1, 1], stride=[1, 1], padding=[0, 0], dilation=[1, 1]"


def test_grids_of_another_number_of_axes_are_refused() -> None:
    flat = ours.Geometry((3, 3), (2, 2), (1, 1), (1, 1))
    for grid in ((8,), (8, 8, 8)):
        with pytest.raises(ValueError, match=r"zip\(\)"):
            ours.output_shape(grid, flat)
        with pytest.raises(ValueError, match=r"zip\(\)"):
            ours.transposed_output_shape(grid, flat, (0, 0))
    with pytest.raises(ValueError, match=r"zip\(\)"):
        ours.transposed_output_shape((8, 8), flat, (0,))
    with pytest.raises(ValueError, match=r"zip\(\)"):
        ours.submanifold_padding((3, 3), (1,))


@pytest.mark.parametrize("name", ["kernel_size", "stride", "dilation"])
def test_zeros_make_no_geometry(name: str) -> None:
    numbers = {"kernel_size": (3, 2), "stride": (1, 2), "padding": (-1, 0), "dilation": (2, 1)}
    ours.Geometry(**numbers)
    with pytest.raises(ValueError, match=rf"{name} must be >= 1 on every axis, got \[1, 0\]"):
        ours.Geometry(**(numbers | {name: (1, 0)}))


def test_mirrored_kernels_negate_every_offset() -> None:
    for described in GEOMETRIES:
        made = ours.Geometry(*described.numbers)
        offsets = [_offset(made, tap) for tap in ours.taps(made.kernel_size)]
        other = [_offset(made.mirrored(), tap) for tap in ours.taps(made.kernel_size)]
        assert other == [tuple(-o for o in offset) for offset in reversed(offsets)]
        assert made.mirrored().mirrored() == made


def _offset(geometry: ours.Geometry, tap: tuple[int, ...]) -> tuple[int, ...]:
    rows = zip(tap, geometry.padding, geometry.dilation, strict=True)
    return tuple(t * d - p for t, p, d in rows)


def test_scaled_kernels_reach_multiples_of_the_unit() -> None:
    made = ours.Geometry((3, 2), (2, 1), (1, 0), (1, 3))
    wide = made.scaled((4, 5))
    assert wide.stride == (1, 1)
    for tap in ours.taps(made.kernel_size):
        wanted = tuple(o * u for o, u in zip(_offset(made, tap), (4, 5), strict=True))
        assert _offset(wide, tap) == wanted
    assert made.with_stride([1, 1]).stride == (1, 1)


def test_submanifold_kernels_are_told() -> None:
    centred = ours.Geometry((3, 5), (1, 1), (1, 4), (1, 2))
    assert centred.is_submanifold
    assert not centred.with_stride((1, 2)).is_submanifold
    assert not ours.Geometry((3, 2), (1, 1), (1, 1), (1, 1)).is_submanifold
    assert not ours.Geometry((3, 3), (1, 1), (1, 0), (1, 1)).is_submanifold


def test_strides_are_multiplied_divided_and_compared() -> None:
    assert ours.coarser((2, 4, 1), (2, 1, 3)) == (4, 4, 3)
    assert ours.finer((4, 4, 3), (2, 1, 3)) == (2, 4, 1)
    assert ours.divides((2, 3), (4, 9))
    assert not ours.divides((2, 3), (4, 8))
    assert not ours.divides((0, 1), (0, 1))
    assert ours.divides((2, 1), (0, 1))


def test_centred_padding_is_that_of_odd_axes() -> None:
    assert ours.centred_padding((3, 2, 5), (2, 2, 1)) == (2, 0, 2)
    assert ours.centred_padding((3, 2, 5), (1, 1, 1), (7, 8, 9), stride=(2, 1, 1)) == (7, 8, 2)


@pytest.mark.parametrize("size", [(3,), (2, 3), (1, 2, 4), (3, 3, 3)])
def test_offsets_of_a_box(size: tuple[int, ...]) -> None:
    low = [-(k // 2) if k % 2 else 0 for k in size]
    wanted = [tuple(a + t for a, t in zip(low, tap, strict=True)) for tap in ours.taps(size)]
    assert ours.cube_offsets(size) == wanted
    mirrored = ours.cube_offsets(size[::-1])
    assert ours.cube_offsets(size, first_fastest=True) == [row[::-1] for row in mirrored]
    moved = ours.cube_offsets(size, [5] * len(size))
    assert moved == [tuple(5 + t for t in tap) for tap in ours.taps(size)]


def test_offsets_of_a_cross_are_those_off_one_axis_at_most() -> None:
    found = ours.cross_offsets((3, 1, 5))
    assert found == [
        (0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, -2), (0, 0, -1),
    ]  # fmt: skip


def test_the_box_around_offsets_pairs_what_they_say() -> None:
    """Tap t of the box leads from q to q * stride + offset * dilation."""
    offsets = [(0, 1), (-1, 0), (2, 3)]
    box, taps = ours.box_around(offsets, (2, 1), (3, 1))
    assert box.kernel_size == (4, 4)
    assert box.stride == (2, 1)
    for offset, tap in zip(offsets, taps, strict=True):
        place = ours.taps(box.kernel_size)[tap]
        reach = [t * d - p for t, d, p in zip(place, box.dilation, box.padding, strict=True)]
        assert reach == [offset[0] * 3, offset[1]]
    whole, order = ours.box_around(ours.cube_offsets((3, 2)), (1, 1), (1, 1))
    assert order == tuple(range(6))
    assert whole.padding == (1, 0)


def test_mirrored_taps_have_negated_offsets() -> None:
    box, taps = ours.box_around([(0, 1), (-1, 0)], (1, 1), (1, 1))
    other = box.mirrored()
    for offset, tap in zip([(0, 1), (-1, 0)], other.mirror_taps(taps), strict=True):
        place = ours.taps(other.kernel_size)[tap]
        assert [t - p for t, p in zip(place, other.padding, strict=True)] == [-o for o in offset]


def test_a_cell_of_units_is_all_its_places() -> None:
    cell = ours.Geometry((2, 1), (2, 1), (0, 0), (1, 1)).whole_cell((3, 4))
    assert (cell.kernel_size, cell.stride, cell.padding) == ((6, 4), (1, 1), (0, 0))


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding", "dilation"),
    [
        ((5, 3), (1, 1), (0, 0), (2**60, 1)),
        ((17, 1), (1, 1), (8 * (2**61 + 1), 0), (2**61 + 1, 1)),
        ((1, 1), (1, 1), (0, -(2**62)), (1, 1)),
        ((2, 2), (1, 2**31), (0, 0), (1, 1)),
    ],
)
def test_taps_too_far_for_64_bits_are_refused(
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    """Products of such sizes wrapped in the kernels: wrong pairs, or memory that is not theirs."""
    with pytest.raises(ValueError, match=r"must reach less than 2\^62, got kernel_size="):
        ours.Geometry(kernel_size, stride, padding, dilation)


def test_taps_almost_as_far_are_taken() -> None:
    assert ours.Geometry((5,), (2**31 - 1,), (-(2**59),), (2**59,)).volume == 5
