"""Operators on spconv's tables agree with the layers, and with spconv's recorded layout."""

from __future__ import annotations

import pytest
import torch

import sparse3d.nn as spnn
from sparse3d.nn import functional as Fsp
from sparse3d.nn import ops
from sparse3d.nn.hash import HashTable
from sparse3d.nn.initial import normal_by_fan_, uniform_by_fan_
from sparse3d.nn.utils import PointToVoxel, gather_features_by_pc_voxel_id, slot_means

SITES = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 3, 3]], dtype=torch.int32)


def scene(channels: int = 3, rows: int = 60) -> spnn.SparseConvTensor:
    cells = torch.randperm(2 * 8 * 8 * 8)[:rows]
    indices = torch.stack([cells // 512, cells // 64 % 8, cells // 8 % 8, cells % 8], 1).int()
    return spnn.SparseConvTensor(torch.randn(rows, channels), indices, [8, 8, 8], 2)


def test_submanifold_table_has_spconvs_layout() -> None:
    """Recorded from spconv 2.3.8 (CPU build)."""
    ones = [1, 1]
    out, pairs, counts = ops.get_indice_pairs(
        SITES, 1, [4, 4], None, [3, 3], ones, ones, ones, [0, 0], subm=True
    )
    assert torch.equal(out, SITES)
    assert counts.tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 0]
    assert pairs.shape == (2, 9, 4)
    assert pairs[:, 0].tolist() == [[0, -1, -1, -1], [2, -1, -1, -1]]
    assert pairs[:, 4].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert pairs[:, 8].tolist() == [[2, -1, -1, -1], [0, -1, -1, -1]]


def test_strided_table_has_spconvs_layout() -> None:
    """Recorded from spconv 2.3.8 (CPU build)."""
    out, pairs, counts = ops.get_indice_pairs(
        SITES, 1, [4, 4], None, [2, 2], [2, 2], [0, 0], [1, 1], [0, 0]
    )
    assert out.tolist() == [[0, 0, 0], [0, 1, 1]]
    assert counts.tolist() == [1, 1, 0, 2]
    assert pairs[:, 3].tolist() == [[2, 3, -1, -1], [0, 1, -1, -1]]


@pytest.mark.parametrize("kind", ["subm", "conv", "inverse", "implicit"])
def test_operators_equal_the_layers(kind: str) -> None:
    x = scene()
    x = x.replace_feature(x.features.requires_grad_())
    down = spnn.SparseConv3d(3, 4, 3, 2, 1, indice_key="down")
    subm = spnn.SubMConv3d(3, 4, 3, indice_key="same")
    layer, data = down, down(x).find_indice_pair("down")
    source = x.features
    if kind == "subm":
        layer, data = subm, subm(x).find_indice_pair("same")
    assert data is not None
    wanted = layer(x).features
    if kind == "inverse":
        up = spnn.SparseInverseConv3d(4, 2, 3, "down")
        middle = down(x)
        source = middle.features
        wanted, layer = up(middle).features, up
        got = Fsp.indice_inverse_conv(
            source, up.weight, data.indice_pairs, data.indice_pair_num, len(x), bias=up.bias
        )
    elif kind == "subm":
        got = Fsp.indice_subm_conv(
            source, layer.weight, data.indice_pairs, data.indice_pair_num, len(x), bias=layer.bias
        )
    elif kind == "conv":
        got = Fsp.indice_conv(
            source, layer.weight, data.indice_pairs, data.indice_pair_num, len(wanted)
        )
        got = got + layer.bias
    else:
        table = data.kernel_map.neighbours().t()
        got = Fsp.implicit_gemm(
            source, layer.weight, table, num_activate_out=len(wanted), bias=layer.bias
        )
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)
    upstream = torch.randn_like(got)
    mine = torch.autograd.grad(got, [x.features, layer.weight], upstream, retain_graph=True)
    theirs = torch.autograd.grad(wanted, [x.features, layer.weight], upstream)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-5)


def test_backward_forms_equal_autograd() -> None:
    x = scene()
    out, pairs, counts = ops.get_indice_pairs(
        x.indices, 2, [8, 8, 8], None, [2] * 3, [2] * 3, [0] * 3, [1] * 3, [0] * 3
    )
    weight = torch.randn(4, 2, 2, 2, 3, requires_grad=True)
    features = x.features.clone().requires_grad_()
    made = ops.indice_conv(features, weight, pairs, counts, len(out))
    upstream = torch.randn_like(made)
    wanted = torch.autograd.grad(made, [features, weight], upstream)
    got = ops.indice_conv_backward(features, weight, upstream, pairs, counts)
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1], wanted[1])
    largest = ops.indice_maxpool(features, pairs, counts, len(out))
    wanted_pool = torch.autograd.grad(largest, features, upstream[:, :3])[0]
    got_pool = ops.indice_maxpool_backward(features, largest, upstream[:, :3], pairs, counts)
    assert torch.equal(got_pool, wanted_pool)


def test_implicit_gemm_tables() -> None:
    x = scene()
    made = ops.get_indice_pairs_implicit_gemm(
        x.indices, 2, [8, 8, 8], None, [3] * 3, [2] * 3, [1] * 3, [1] * 3, [0] * 3
    )
    out, counts, forward, backward, mask, _, order, _, _ = made
    assert forward.shape == (27, len(out))
    assert backward.shape == (27, len(x))
    assert torch.equal(counts.cpu(), (forward >= 0).sum(1).int())
    for tap in (0, 13, 26):
        rows = (forward[tap] >= 0).nonzero()[:, 0]
        assert torch.equal(backward[tap, forward[tap, rows].long()].long(), rows)
        assert torch.equal((mask[0][:, 0] >> tap & 1).bool(), forward[tap] >= 0)
    assert torch.equal(order[0].sort().values, torch.arange(len(out), dtype=torch.int32))
    features = x.features.clone().requires_grad_()
    mean, count = ops.indice_avgpool_implicit_gemm(features, forward, len(out))
    upstream = torch.randn_like(mean)
    wanted = torch.autograd.grad(mean, features, upstream)[0]
    got = ops.indice_avgpool_implicit_gemm_backward(upstream, backward, count)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)
    largest = ops.indice_maxpool_implicit_gemm(features, forward, len(out))
    wanted = torch.autograd.grad(largest, features, upstream)[0]
    got = ops.indice_maxpool_implicit_gemm_backward(features, largest, upstream, backward)
    assert torch.equal(got, wanted)


def test_rows_out_of_range_are_refused() -> None:
    x = scene()
    out, pairs, counts = ops.get_indice_pairs(
        x.indices, 2, [8, 8, 8], None, [2] * 3, [2] * 3, [0] * 3, [1] * 3, [0] * 3
    )
    weight = torch.randn(4, 2, 2, 2, 3)
    with pytest.raises(ValueError, match=r"indice_pairs: output rows must be in \[0, 1\)"):
        Fsp.indice_conv(x.features, weight, pairs, counts, 1)
    with pytest.raises(ValueError, match=r"indice_pairs: input rows must be in"):
        Fsp.indice_conv(x.features[:3], weight, pairs, counts, len(out))


def test_output_sizes() -> None:
    assert ops.get_conv_output_size([41, 400], [3, 3], [2, 2], [1, 1], [1, 1]) == [21, 200]
    assert ops.get_conv_output_size([41, 400], [-1, 3], [1, 1], [0, 1], [1, 1]) == [1, 400]
    assert ops.get_deconv_output_size([5], [3], [2], [1], [1], [1]) == [10]
    with pytest.raises(ValueError, match="kernel_size must be >= 1"):
        ops.get_deconv_output_size([5], [-1], [2], [1], [1], [1])


def test_sparse_add_is_the_union() -> None:
    left, right = scene(rows=40), scene(rows=50)
    for function in (Fsp.sparse_add, Fsp.sparse_add_hash_based):
        total = function(left, right)
        assert torch.allclose(total.dense(), left.dense() + right.dense())


def test_sums_keep_the_maps_of_a_tensor_that_has_every_site() -> None:
    """A residual by `sparse_add` in an encoder, undone by a layer of the decoder."""
    x = scene()
    order = torch.randperm(60)
    x = spnn.SparseConvTensor(x.features, x.indices[order], [8, 8, 8], 2)
    coarse = spnn.SparseConv3d(3, 4, 2, 2, indice_key="down")(x)
    part = coarse.select_by_index(torch.randperm(len(coarse))[:7])
    for operands in ((coarse, part), (part, coarse), (part, part, coarse)):
        total = Fsp.sparse_add(*operands)
        assert torch.equal(total.indices, coarse.indices)
        wanted = sum(operand.dense() for operand in operands)
        torch.testing.assert_close(total.dense(), wanted)
        up = spnn.SparseInverseConv3d(4, 2, 2, "down")
        assert torch.equal(up(total).indices, x.indices)
    away = coarse.select_by_index(torch.arange(1, len(coarse)))
    other = coarse.select_by_index(torch.arange(1))
    assert Fsp.sparse_add(away, other).indice_dict == {}
    twice = spnn.SparseConvTensor(
        torch.randn(2, 4), coarse.indices[[0, 0]], coarse.spatial_shape, 2, check=False
    )
    both = Fsp.sparse_add(twice, coarse.select_by_index(torch.arange(2)))
    assert both.features.shape == (2, 4)
    torch.testing.assert_close(both.features[0], twice.features.sum(0) + coarse.features[0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_hash_table(dtype: torch.dtype) -> None:
    table = HashTable(torch.device("cpu"), dtype, torch.float32)
    big = 2**40 if dtype == torch.int64 else 2**30
    keys = torch.tensor([5, -7, big, -1, 5], dtype=dtype)
    table.insert(keys, torch.tensor([1.0, 2.0, 3.0, 4.0, 9.0]))
    values, missing = table.query(torch.tensor([-1, 6, big, 5, -7], dtype=dtype))
    assert values.tolist() == [4.0, 0.0, 3.0, 1.0, 2.0]
    assert missing.tolist() == [False, True, False, False, False]
    table.insert(torch.tensor([8, 5], dtype=dtype), torch.tensor([8.0, 6.0]))
    listed, values, count = table.items()
    assert listed.tolist() == [5, -7, big, -1, 8]
    assert values.tolist() == [6.0, 2.0, 3.0, 4.0, 8.0]
    assert int(count) == 5
    failed = table.insert_exist_keys(torch.tensor([8, 77], dtype=dtype), torch.tensor([0.5, 0.5]))
    assert failed.tolist() == [0, 1]
    assert table.query(torch.tensor([77], dtype=dtype))[1].tolist() == [True]
    assert int(table.assign_arange_()) == 5
    assert table.query(listed)[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_hash_table_refuses() -> None:
    with pytest.raises(TypeError, match="key_dtype must be int32 or int64"):
        HashTable(torch.device("cpu"), torch.float32, torch.int32)
    table = HashTable(torch.device("cpu"), torch.int32, torch.int32)
    with pytest.raises(TypeError, match=r"keys must be torch.int32, got torch.int64"):
        table.insert(torch.tensor([1]))


def test_points_to_voxels_and_back() -> None:
    points = torch.tensor(
        [[0.1, 0.1, 0.1, 1.0], [0.2, 0.1, 0.1, 3.0], [1.5, 0.1, 0.1, 5.0], [9.0, 0.0, 0.0, 7.0]]
    )
    made = PointToVoxel([1.0, 1.0, 1.0], [0, 0, 0, 4, 2, 1], 4, 10, 3)
    assert made.grid_size == [1, 2, 4]
    voxels, indices, counts, ids = made.generate_voxel_with_id(points)
    assert indices.tolist() == [[0, 0, 0], [0, 0, 1]]
    assert counts.tolist() == [2, 1]
    assert ids.tolist() == [0, 0, 1, -1]
    assert voxels[0, 2].tolist() == [0.0] * 4
    filled, _, _ = made(points, empty_mean=True)
    torch.testing.assert_close(filled[0, 2], points[:2].mean(0))
    torch.testing.assert_close(filled[1, 1], points[2])
    values = gather_features_by_pc_voxel_id(torch.tensor([[1.0], [2.0]]), ids, invalid_value=-5)
    assert values[:, 0].tolist() == [1.0, 1.0, 2.0, -5.0]
    with pytest.raises(ValueError, match="pc must be of 4 columns, got 3"):
        made(points[:, :3])


def test_remove_duplicate_merges() -> None:
    indices = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 2, 2]], dtype=torch.int32)
    x = spnn.SparseConvTensor(torch.ones(3, 2), indices, [4, 4], 1, check=False)
    out = spnn.spatial.RemoveDuplicate()(x)
    assert out.indices.tolist() == [[0, 1, 1], [0, 2, 2]]
    assert out.features[:, 0].tolist() == [2.0, 1.0]


def test_gradients_at_inputs_leave_them_alone() -> None:
    left, right = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])
    with torch.no_grad():
        found = Fsp.input_gradients(lambda a, b: a * b, torch.tensor([1.0, 10.0]), left, right)
    assert [grad.tolist() for grad in found] == [[5.0, 70.0], [2.0, 30.0]]
    assert not left.requires_grad


def test_every_tap_may_be_counted() -> None:
    sites = torch.tensor([[0, 1, 1], [0, 1, 2], [0, 3, 3]], dtype=torch.int32)
    sizes = [3, 3], [1, 1], [1, 1], [1, 1], [0, 0]
    _, table, counts = ops.get_indice_pairs(sites, 1, [5, 5], None, *sizes, True, count_all=True)
    assert counts.tolist() == [0, 0, 0, 1, 3, 1, 0, 0, 0]
    assert counts.tolist() == (table[0] >= 0).sum(1).tolist()


@pytest.mark.parametrize("fan", [1, 27])
def test_initial_values_by_fan(fan: int) -> None:
    kernel, bias = torch.full((4000,), 9.0), torch.full((4000,), 9.0)
    uniform_by_fan_(fan, kernel, None, bias)
    for values in (kernel, bias):
        assert float(values.abs().max()) == pytest.approx(fan**-0.5, rel=0.01)
        assert float(values.std()) == pytest.approx((3 * fan) ** -0.5, rel=0.05)
    assert normal_by_fan_(fan, kernel, 2.0) is kernel
    assert float(kernel.std()) == pytest.approx(2 * fan**-0.5, rel=0.05)
    with pytest.raises(ValueError, match="fan must be > 0, got 0"):
        uniform_by_fan_(0, kernel)


def test_means_of_slots() -> None:
    voxels = torch.tensor([[[1.0], [3.0], [9.0]], [[4.0], [9.0], [9.0]]])
    assert slot_means(voxels, torch.tensor([2, 1])).tolist() == [[2.0], [4.0]]
