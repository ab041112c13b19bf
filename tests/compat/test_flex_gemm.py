"""The FlexGEMM stand-in against dense layers, its cache, and grid samples."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import sparse3d.nn as spnn
from sparse3d.compat.flex_gemm.ops import grid_sample, serialize, spconv
from sparse3d.compat.flex_gemm.ops.grid_sample import grid_sample_3d

SHAPE = (2, 4, 8, 7, 6)


def scene() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    cells = torch.randperm(2 * 336)[:120]
    coords = torch.stack([cells // 336, cells // 42 % 8, cells // 6 % 7, cells % 6], 1).int()
    feats = torch.randn(120, 4)
    dense = spnn.SparseConvTensor(feats, coords, SHAPE[2:], 2).dense()
    return feats, coords, dense


@pytest.mark.parametrize("dilation", [(1, 1, 1), (2, 1, 2)])
def test_submanifold(dilation: tuple[int, int, int]) -> None:
    feats, coords, dense = scene()
    weight, bias = torch.randn(5, 3, 3, 3, 4, requires_grad=True), torch.randn(5)
    out, cache = spconv.sparse_submanifold_conv3d(
        feats, coords, SHAPE, weight, bias, dilation=dilation
    )
    wanted = functional.conv3d(
        dense, weight.permute(0, 4, 1, 2, 3), bias, padding=dilation, dilation=dilation
    ).movedim(1, -1)[coords.long().unbind(1)]
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
    again, kept = spconv.sparse_submanifold_conv3d(
        feats, coords, torch.Size(SHAPE), weight, bias, cache, dilation
    )
    assert kept is cache
    assert torch.equal(again, out)
    (grad,) = torch.autograd.grad(out.sum(), weight)
    (theirs,) = torch.autograd.grad(wanted.sum(), weight)
    torch.testing.assert_close(grad, theirs, rtol=1e-4, atol=1e-4)
    assert cache["neighbor_map"].shape == (120, 27)
    with pytest.raises(ValueError, match="neighbor_cache must be of kernel_size"):
        spconv.sparse_submanifold_conv3d(
            feats, coords, SHAPE, weight[:, 1:2], bias, cache, dilation
        )
    with pytest.raises(ValueError, match="pass None to make it anew"):
        spconv.sparse_submanifold_conv3d(
            feats, coords.flip(0), SHAPE, weight, bias, cache, dilation
        )


@pytest.mark.parametrize(("stride", "padding"), [((2, 2, 2), (1, 1, 1)), ((1, 1, 1), (0, 1, 0))])
def test_strided_and_given(stride: tuple[int, ...], padding: tuple[int, ...]) -> None:
    feats, coords, dense = scene()
    weight = torch.randn(5, 3, 3, 3, 4)
    out, places, cache = spconv.sparse_conv3d(
        feats, coords, SHAPE, weight, stride=stride, padding=padding
    )
    grid = functional.conv3d(dense, weight.permute(0, 4, 1, 2, 3), None, stride, padding)
    wanted = grid.movedim(1, -1)[places.long().unbind(1)]
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
    some = places[:7].contiguous()
    few, kept, _ = spconv.sparse_conv3d(
        feats, coords, SHAPE, weight, out_coords=some, stride=stride, padding=padding
    )
    assert kept is some
    torch.testing.assert_close(few, out[:7])
    again, _, same = spconv.sparse_conv3d(
        feats, coords, SHAPE, weight, None, cache, stride=stride, padding=padding
    )
    assert same is cache
    assert torch.equal(again, out)


def test_settings_are_accepted_by_name() -> None:
    spconv.set_algorithm(spconv.Algorithm.IMPLICIT_GEMM)
    spconv.set_algorithm("masked_implicit_gemm_splitk")
    assert spconv.ALGORITHM == "masked_implicit_gemm_splitk"
    spconv.set_hashmap_ratio(2.0)
    grid_sample.set_hashmap_ratio(2.0)
    spconv.set_backend("triton")
    with pytest.raises(ValueError, match="algorithm must be one of"):
        spconv.set_algorithm("winograd")


@pytest.mark.parametrize("mode", ["z_order", "hilbert"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [(SHAPE, torch.int32), ((3, 4, 2048, 9, 9), torch.int64)]
)
def test_codes(mode: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _, coords, _ = scene()
    codes = serialize.encode_seq(coords, shape, mode)
    assert codes.dtype == dtype
    assert len(codes.unique()) == len(coords)
    assert torch.equal(serialize.decode_seq(codes, shape, mode), coords)


def test_codes_by_hand_and_what_does_not_fit() -> None:
    coords = torch.tensor([[1, 5, 2, 0]]).int()  # x 101, y 010, z 000: bits x2 y2 z2 x1 y1 z1 ...
    assert serialize.encode_seq(coords, (2, 4, 7, 7, 7)).tolist() == [0b1_100_010_100]
    high = torch.tensor([[3, 1, 0, 0]]).int()  # the 32nd bit is used
    codes = serialize.encode_seq(high, (3, 1, 1023, 9, 9))
    assert codes.dtype == torch.int32
    assert codes.item() == (3 << 30 | 4) - (1 << 32)
    assert torch.equal(serialize.decode_seq(codes, (3, 1, 1023, 9, 9)), high)
    with pytest.raises(ValueError, match="mode must be one of"):
        serialize.encode_seq(coords, SHAPE, "peano")
    with pytest.raises(ValueError, match="shape must be of 64 bits at most"):
        serialize.encode_seq(coords, (1, 1, 1 << 21, 9, 9))
    with pytest.raises(ValueError, match="cells must be in"):
        serialize.encode_seq(coords, (2, 4, 3, 3, 3))


def test_parts_of_the_functions() -> None:
    feats, coords, _ = scene()
    one, two = (1, 1, 1), (2, 2, 2)
    weight, bias = torch.randn(5, 3, 3, 3, 4, requires_grad=True), torch.randn(5)
    out, _ = spconv.sparse_submanifold_conv3d(feats, coords, SHAPE, weight, bias)
    inner = spconv.SubMConv3dFunction
    cache = inner._compute_neighbor_cache(coords, SHAPE, (3, 3, 3), one, True)
    assert torch.equal(inner._sparse_submanifold_conv_forward(feats, cache, weight, bias), out)
    table = cache["neighbor_map"]
    assert int((table != 0xFFFFFFFF).sum()) == len(cache.pairs)
    assert torch.equal(coords[table[table[:, 0] != 0xFFFFFFFF, 0]] + torch.tensor([0, 1, 1, 1]),
                       coords[table[:, 0] != 0xFFFFFFFF])  # fmt: skip
    grad = torch.randn_like(out)
    found = inner._sparse_submanifold_conv_backward(grad, feats, cache, weight, bias)
    assert found[0] is found[2] is None
    assert torch.equal(found[1], torch.autograd.grad(out, weight, grad)[0])
    strided = spconv.SparseConv3dFunction
    places = strided._get_output_coords(coords, SHAPE, two, two, (0, 0, 0), one)
    want, at, _ = spconv.sparse_conv3d(feats, coords, SHAPE, weight[:, :2, :2, :2], stride=2)
    assert torch.equal(places, at)
    for sites in ((), (places,)):
        made = strided._compute_neighbor_cache(
            coords, *sites, SHAPE, two, two, (0, 0, 0), one, False
        )
        assert torch.equal(strided._sparse_conv_forward(feats, made, weight[:, :2, :2, :2]), want)


def test_grid_sample_of_a_full_grid_is_torchs() -> None:
    axes = torch.meshgrid(*(torch.arange(n) for n in (1, 4, 4, 4)), indexing="ij")
    coords = torch.stack([a.reshape(-1) for a in axes], 1).int()
    feats = torch.randn(64, 3)
    dense = feats.reshape(1, 4, 4, 4, 3).permute(0, 4, 1, 2, 3)
    points = 0.5 + torch.rand(1, 20, 3) * 3
    out = grid_sample_3d(feats, coords, (1, 3, 4, 4, 4), points)
    scaled = (points / 4 * 2 - 1).flip(-1)[:, :, None, None]
    wanted = functional.grid_sample(dense, scaled, align_corners=False)[..., 0, 0]
    torch.testing.assert_close(out, wanted.transpose(1, 2), rtol=1e-4, atol=1e-5)
    nearest = grid_sample_3d(feats, coords, (1, 3, 4, 4, 4), points, "nearest")
    cells = points[0].floor().long()
    assert torch.equal(nearest[0], dense[0][:, cells[:, 0], cells[:, 1], cells[:, 2]].t())
    outside = grid_sample_3d(feats, coords, (1, 3, 4, 4, 4), torch.full((1, 1, 3), 9.0), "nearest")
    assert not outside.any()
