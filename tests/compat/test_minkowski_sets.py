"""Sets of coordinates of the MinkowskiEngine stand-in where they are not the usual ones, against
plain loops over absolute coordinates: what MinkowskiEngine 0.5.4, built for CPUs, answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sparse3d.compat.minkowski as ME
from sparse3d.compat.minkowski._backend import _C

Place = tuple[int, ...]
ODD = [[0, 4, 2], [0, 4, 0], [0, 3, 4], [0, 1, 1], [0, -1, 7], [1, 4, 2], [1, -3, -4]]
"""Coordinates that no tensor stride but 1 divides."""


def rows_at(x: Any) -> dict[Place, torch.Tensor]:
    return {tuple(c): f for c, f in zip(x.C.tolist(), x.F, strict=True)}


def tensor(coords: list[list[int]], stride: int, **more: Any) -> Any:
    torch.manual_seed(0)
    features = torch.randn(len(coords), 3, dtype=torch.float64)
    return ME.SparseTensor(features, torch.tensor(coords).int(), tensor_stride=stride, **more)


def shifted(place: Place, offset: Place, step: int) -> Place:
    return place[0], *(p + o * step for p, o in zip(place[1:], offset, strict=True))


def offsets(size: int) -> list[Place]:
    """Of a cube with the first axis fastest: odd sizes centred, even ones from 0."""
    steps = range(-(size // 2), size // 2 + 1) if size % 2 else range(size)
    return [(a, b) for b, a in itertools.product(steps, steps)]


def convolved(x: Any, out: Any, layer: Any, size: int, step: int, sign: int = 1) -> torch.Tensor:
    """in = out + sign * offset * step."""
    table = rows_at(x)
    made = torch.zeros_like(out.F)
    for row, place in enumerate(out.C.tolist()):
        for tap, offset in enumerate(offsets(size)):
            near = shifted(tuple(place), offset, sign * step)
            if near in table:
                made[row] += table[near] @ layer.kernel[tap]
    return made


def floored(coords: list[list[int]], step: int) -> set[Place]:
    return {(c[0], *(v // step * step for v in c[1:])) for c in coords}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_coordinates_between_the_steps_of_their_stride_stay(size: int, stride: int) -> None:
    x = tensor(ODD, 4)
    assert (x.C.tolist(), x.tensor_stride) == (ODD, [4, 4])
    layer = ME.MinkowskiConvolution(3, 3, kernel_size=size, stride=stride, dimension=2).double()
    y = layer(x)
    assert y.tensor_stride == [4 * stride] * 2
    wanted = {tuple(c) for c in ODD} if stride == 1 else floored(ODD, 8)
    assert set(rows_at(y)) == wanted
    assert torch.allclose(y.F, convolved(x, y, layer, size, 4))


@pytest.mark.parametrize("size", [2, 3])
def test_layers_that_make_sites_from_such_coordinates(size: int) -> None:
    x = tensor(ODD, 2)
    made = {"kernel_size": size, "stride": 2, "dimension": 2}
    up = ME.MinkowskiGenerativeConvolutionTranspose(3, 3, **made).double()
    y = up(x)
    reached = {shifted(tuple(c), o, 1) for c in ODD for o in offsets(size)}
    assert (set(rows_at(y)), y.tensor_stride) == (reached, [1, 1])
    assert torch.allclose(y.F, convolved(x, y, up, size, 1, -1))
    grow = ME.MinkowskiConvolution(3, 3, expand_coordinates=True, **made).double()
    z = grow(x)
    met = {shifted(tuple(c), o, 2) for c in ODD for o in offsets(size)}
    assert set(rows_at(z)) == {p for p in met if all(v % 4 == 0 for v in p[1:])}
    assert torch.allclose(z.F, convolved(x, z, grow, size, 2))


def test_pools_pruning_and_interpolation_of_such_coordinates() -> None:
    x = tensor(ODD, 2)
    pooled = ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=2)(x)
    for place, row in rows_at(pooled).items():
        inside = [f for p, f in rows_at(x).items() if floored([list(p)], 4) == {place}]
        assert torch.allclose(row, torch.stack(inside).sum(0))
    kept = ME.MinkowskiPruning()(x, torch.arange(len(ODD)) % 2 == 0)
    assert kept.C.tolist() == ODD[::2]
    # Corners of an interpolation are multiples of the stride: (4, 2) and (4, 0) alone are near.
    samples = torch.tensor([[0, 4.0, 1.5], [0, 1.0, 1.0]]).double()
    found = x.features_at_coordinates(samples)
    assert torch.allclose(found[0], 0.75 * x.F[0] + 0.25 * x.F[1])
    assert not found[1].any()
    field = ME.TensorField(x.F, x.C.double(), coordinate_manager=x.coordinate_manager)
    assert torch.equal(x.slice(field).F[:2], x.F[:2])


def test_union_of_tensors_of_two_strides_meets_in_absolute_coordinates() -> None:
    fine = tensor([[0, 0, 0], [0, 1, 1], [0, 2, 2]], 1)
    coarse = tensor([[0, 2, 2], [0, 4, 4]], 2, coordinate_manager=fine.coordinate_manager)
    wanted = {(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 4, 4)}
    for first, second in ((fine, coarse), (coarse, fine)):
        for out in (ME.MinkowskiUnion()(first, second), first + second):
            assert (set(rows_at(out)), out.tensor_stride) == (wanted, first.tensor_stride)
            assert torch.equal(rows_at(out)[0, 2, 2], fine.F[2] + coarse.F[0])


@pytest.mark.parametrize("kind", ["Sum", "Avg", "Max"])
def test_a_pool_whose_kernel_is_its_stride_pools_cells_whatever_its_dilation(kind: str) -> None:
    x = tensor(ODD, 1)
    pool = getattr(ME, f"Minkowski{kind}Pooling")(3, stride=3, dilation=2, dimension=2)
    reduce = {"Sum": torch.sum, "Avg": torch.mean, "Max": torch.amax}[kind]
    for place, row in rows_at(pool(x)).items():
        inside = [f for p, f in rows_at(x).items() if floored([list(p)], 3) == {place}]
        assert torch.allclose(row, reduce(torch.stack(inside), 0))


def test_kernel_maps_of_pools_have_one_tap_and_regions_may_be_numbers() -> None:
    manager = ME.CoordinateManager(D=1)
    key, _ = manager.insert_and_map(torch.tensor([[0, 1], [0, 2], [1, 0], [1, 5]]).int())
    coarse = manager.stride(key, [4])
    found = manager.kernel_map(
        key, coarse, [4], [4], [3], ME.RegionType.HYPER_CUBE, None, False, True
    )
    assert list(found) == [0]
    places = manager.get_coordinates(coarse)[found[0][1].long()].tolist()
    assert (found[0][0].tolist(), places) == ([0, 1, 2, 3], [[0, 0], [0, 0], [1, 0], [1, 4]])
    back = manager.kernel_map(coarse, key, 4, 4, is_transpose=True, is_pool=True)
    assert torch.equal(back[0], found[0].flip(0))
    same = manager.kernel_map(key, key, kernel_size=1, region_type=1)
    assert same[0].tolist() == [[0, 1, 2, 3]] * 2
    cross = manager.kernel_map(key, key, kernel_size=3, region_type=1)
    assert {tap: rows.tolist() for tap, rows in cross.items() if tap} == {
        1: [[1], [0]],
        2: [[0], [1]],
    }


def test_coordinates_win_over_expansion() -> None:
    x = tensor(ODD, 1)
    target = tensor([[0, 4, 2], [0, 0, 0]], 1, coordinate_manager=x.coordinate_manager)
    layer = ME.MinkowskiConvolution(3, 3, kernel_size=3, expand_coordinates=True, dimension=2)
    y = layer.double()(x, target)
    assert y.coordinate_map_key == target.coordinate_map_key
    assert torch.allclose(y.F, convolved(x, y, layer, 3, 1))


@pytest.mark.parametrize("kind", ["Sum", "Avg", "Max"])
def test_global_pools_take_the_keys_of_fields(kind: str) -> None:
    coords = torch.tensor([[1, 0.5], [0, 0.25], [1, 0.75], [0, 3.5], [1, 0.6]]).double()
    features = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    field = ME.TensorField(features, coords)
    sparse = field.sparse()
    pool = getattr(ME, f"MinkowskiGlobal{kind}Pooling")()
    reduce = {"Sum": torch.sum, "Avg": torch.mean, "Max": torch.amax}[kind]
    wanted = torch.stack([reduce(features[coords[:, 0] == b], 0) for b in (0, 1)])
    by_key = ME.MinkowskiGlobalPoolingFunction.apply(
        features, pool.pooling_mode, field.coordinate_field_map_key, None, field.coordinate_manager
    )
    assert torch.allclose(pool(field).F, wanted)
    assert torch.allclose(by_key, wanted)
    assert len(pool(sparse).F) == 2


def test_enums_of_the_backend_are_numbers_with_names() -> None:
    assert [int(kind) for kind in _C.RegionType] == [0, 1, 2]
    assert _C.RegionType(1) is _C.HYPER_CROSS
    assert _C.RegionType.CUSTOM == 2
    assert f"{_C.RegionType.HYPER_CUBE}" == str(_C.HYPER_CUBE) == "RegionType.HYPER_CUBE"
    assert bool(_C.RegionType.HYPER_CUBE)
    assert _C.DEFAULT is _C.ConvolutionMode.DEFAULT
    assert _C.SPEED_OPTIMIZED is _C.MinkowskiAlgorithm.SPEED_OPTIMIZED
    assert _C.CUDA is _C.CoordinateMapType.CUDA
    assert _C.CUDAKernelMapMode.SPEED_OPTIMIZED.value == 1


def test_the_backend_quantizes_with_labels_and_the_way_back() -> None:
    cells = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1]]).int()
    labels = torch.tensor([1, 1, 2, 3]).int()
    first, inverse, merged = _C.quantize_label_np(cells.numpy(), labels.numpy(), -9)
    assert (cells.numpy()[first][inverse] == cells.numpy()).all()
    assert merged.tolist() == [1, -9]
    first, inverse, merged = _C.quantize_label_th(cells, labels, -9)
    assert torch.equal(cells[first][inverse], cells)
    assert merged.tolist() == [1, -9]


def test_batch_ids_that_the_origin_lacks_are_refused() -> None:
    """Rows of samples that no row of the origin stands for would be written past its end."""
    first = ME.SparseTensor(torch.ones(1, 1), torch.tensor([[0, 1, 1]], dtype=torch.int32))
    pool = ME.MinkowskiGlobalSumPooling()
    assert pool(first).F.tolist() == [[1.0]]
    later = torch.tensor([[0, 1, 1], [3, 1, 1]], dtype=torch.int32)
    manager = first.coordinate_manager
    second = ME.SparseTensor(torch.ones(2, 1), later, coordinate_manager=manager)
    with pytest.raises(ValueError, match=r"batch ids must be among \[0\], those pooled first"):
        pool(second)
