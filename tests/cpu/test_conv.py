"""Convolution, its gradients and the fused form against the torch references."""

from __future__ import annotations

import itertools

import pytest
import torch

from sparse3d import _registry
from sparse3d.cpu import _library
from sparse3d.ops import conv as V
from sparse3d.ops import coordinates as C
from sparse3d.ops import kernel_map as M

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Of the largest entry: sums of a few hundred products. Halves come from float32 sums: two results
# may also round to neighbouring numbers: one unit in the last place of the entry itself.
SUMS = {torch.float64: 1e-14}


def close(got, wanted):
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if wanted.numel():
        unit = torch.finfo(got.dtype).eps if got.dtype.itemsize == 2 else 0.0
        mine, theirs = got.double(), wanted.double()
        bound = SUMS.get(got.dtype, 2e-6) * theirs.abs().max().clamp(min=1e-30)
        excess = (mine - theirs).abs() - unit * theirs.abs() - bound
        assert excess.max() <= 0, float(excess.max() / bound)


def submanifold(coords, kernel=3):
    with _registry.force("reference"):
        lists = ([kernel] * (coords.shape[1] - 1), [1] * (coords.shape[1] - 1))
        return (*M.kernel_map_submanifold(coords, C.coordinate_table(coords), *lists), len(coords))


def strided(coords, kernel=3):
    ndim = coords.shape[1] - 1
    lists = ([kernel] * ndim, [2] * ndim, [kernel // 2] * ndim, [1] * ndim)
    with _registry.force("reference"):
        out, *pairs = M.kernel_map_footprint(coords, *lists, [], False)
    return (*pairs, len(out))


def values(shape, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run_all(coords, pairs, channels_in, channels_out, groups, dtype, *, planned, mirrored):
    """Forward, transposed forward and the gradients by one backend."""
    src, dst, splits, rows_out = pairs
    rows_in, taps = len(coords), len(splits) - 1
    x, g = values((rows_in, channels_in), dtype, 1), values((rows_out, channels_out), dtype, 2)
    w = values((channels_out, taps, channels_in // groups), dtype, 3) / 8
    plan, back = [], []
    if planned:
        plan = V.conv_plan(src, dst, splits, rows_in, rows_out, mirrored)
        back = V.conv_plan(dst, src, splits, rows_out, rows_in, mirrored)
    swapped = values((channels_in, taps, channels_out // groups), dtype, 4) / 8
    return [
        V.conv_forward(x, w, src, dst, splits, plan, back, rows_out, groups),
        V.conv_forward(g, swapped, dst, src, splits, back, plan, rows_in, groups),
        V.conv_input_grad(g, w, src, dst, splits, back, plan, rows_in, groups),
        V.conv_weight_grad(x, g, src, dst, splits, plan, back, groups),
    ]


def compare(coords, pairs, channels_in, channels_out, groups, dtype, *, mirrored=False):
    args = (coords, pairs, channels_in, channels_out, groups, dtype)
    with _registry.force("reference"):
        wanted = run_all(*args, planned=False, mirrored=mirrored)
    with _registry.force("cpu"), _registry.strict():
        plain = run_all(*args, planned=False, mirrored=mirrored)
        planned = run_all(*args, planned=True, mirrored=mirrored)
    for mine, theirs, again in zip(plain, wanted, planned, strict=True):
        close(mine, theirs)
        close(again, theirs)


CHANNELS = [(1, 1), (4, 32), (3, 19), (16, 16), (20, 48), (33, 7), (64, 96), (128, 24)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_submanifold(scene, channels, dtype):
    coords = scene(400, 3)
    compare(coords, submanifold(coords), *channels, 1, dtype, mirrored=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [(8, 40), (40, 8)])
@pytest.mark.parametrize("kernel", [2, 3])
def test_strided(scene, channels, dtype, kernel):
    coords = scene(400, 3)
    compare(coords, strided(coords, kernel), *channels, 1, dtype)


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33])
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(scene, rows, ndim, dtype):
    coords = scene(rows, ndim)
    compare(coords, submanifold(coords), 5, 9, 1, dtype, mirrored=True)
    compare(coords, strided(coords), 5, 9, 1, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 6, 2), (12, 24, 4), (24, 24, 24), (17, 17, 17), (8, 16, 8)])
def test_groups(scene, shape, dtype):
    coords = scene(200, 3)
    compare(coords, submanifold(coords), *shape, dtype, mirrored=True)
    compare(coords, strided(coords), *shape, dtype)


@pytest.mark.parametrize("channels", [(0, 5), (5, 0), (0, 0)])
def test_no_channels(scene, channels):
    coords = scene(40, 2)
    compare(coords, submanifold(coords), *channels, 1, torch.float32, mirrored=True)


def test_duplicates_and_repeated_pairs(scene):
    coords = scene(300, 2, low=-4, high=4, distinct=False)
    compare(coords, submanifold(coords), 16, 20, 1, torch.float32)
    compare(coords, strided(coords), 16, 20, 1, torch.float32)


def test_one_by_one_and_identity(scene):
    coords = scene(3000, 3, low=-9, high=9)
    compare(coords, submanifold(coords, 1), 24, 40, 1, torch.float32, mirrored=True)


@pytest.mark.parametrize("path", _library.paths())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [(32, 32), (5, 130), (96, 64)])
def test_paths(scene, path, dtype, channels):
    coords = scene(400, 3)
    with _library.use_path(path):
        compare(coords, submanifold(coords), *channels, 1, dtype, mirrored=True)
        compare(coords, strided(coords), *channels, 1, dtype)


def test_weight_gradient_of_a_long_tap(both):
    rows = torch.arange(50_000, dtype=torch.int32)
    splits = torch.tensor([0, len(rows), len(rows)])
    for groups in (1, 2):
        x, g = values((len(rows), 10), torch.float64, 1), values((len(rows), 6), torch.float64, 2)
        close(*both(V.conv_weight_grad, x, g, rows, rows, splits, [], [], groups))
        x, g = x.float(), g.float()
        got, wanted = both(V.conv_weight_grad, x, g, rows, rows, splits, [], [], groups)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 24])
def test_fused(scene, both, dtype, groups):
    coords = scene(150, 3)
    src, dst, splits, rows = submanifold(coords)
    x, w = values((rows, 24), dtype, 1), values((24, 27, 24 // groups), dtype, 2) / 8
    bias, residual = values((24,), torch.float32, 3), values((rows, 24), dtype, 4)
    scale = values((24,), torch.float32, 5)
    names = ("none", "relu", "leaky_relu", "sigmoid")
    extras = ((None, scale), (None, bias), (None, residual))
    for name, s, b, r in itertools.product(names, *extras):
        args = (x, w, src, dst, splits, [], rows, groups, b, r, name, 0.1, s)
        close(*both(V.conv_fused, *args))


def test_fused_keeps_nan_and_infinity(scene, both):
    coords = scene(40, 2)
    src, dst, splits, rows = submanifold(coords)
    x = values((rows, 9), torch.float32, 1)
    x[3, 2], x[7, 1] = float("nan"), float("inf")
    w = torch.ones(9, 9, 9)
    for name in ("none", "relu", "leaky_relu", "sigmoid"):
        got, wanted = both(V.conv_fused, x, w, src, dst, splits, [], rows, 1, None, None, name, 0.1)
        torch.testing.assert_close(got, wanted, equal_nan=True)


def test_weight_views(scene, both):
    """The weight is a view of the stored parameter; spconv stores 1x1 weights input-major."""
    coords = scene(200, 3)
    src, dst, splits, rows = submanifold(coords)
    x = values((rows, 8), torch.float32, 1)
    stored = values((27, 8, 12), torch.float32, 2)
    weight = stored.permute(2, 0, 1)
    close(*both(V.conv_forward, x, weight, src, dst, splits, [], [], rows, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bytes_on_any_thread_count(scene, each_thread_count, dtype):
    coords = scene(6000, 3, low=-14, high=14)
    pairs, coarse = submanifold(coords), strided(coords)

    def run():
        with _registry.force("cpu"):
            args = (32, 48, 1, dtype)
            return [
                *run_all(coords, pairs, *args, planned=True, mirrored=True),
                *run_all(coords, coarse, *args, planned=False, mirrored=False),
                *run_all(coords, pairs, 16, 16, 16, dtype, planned=True, mirrored=True),
            ]

    each_thread_count(run)


def test_gradcheck(scene):
    coords = scene(30, 2)
    src, dst, splits, rows = strided(coords)
    x = torch.randn(len(coords), 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(6, 9, 2, dtype=torch.float64, requires_grad=True)

    def run(a, b):
        return V.conv_forward(a, b, src, dst, splits, [], [], rows, 2)

    with _registry.force("cpu"), _registry.strict():
        assert torch.autograd.gradcheck(run, (x, w))
        assert torch.autograd.gradgradcheck(run, (x, w))
