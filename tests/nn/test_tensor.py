"""`SparseConvTensor`: spconv's surface, what its users miss, and code that mutates."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from nn.scenes import scene
from torch.utils.data import DataLoader, Dataset

import sparse3d
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

# ------------------------------------------------------------------------------ construction


def make(**changed: object) -> SparseConvTensor:
    given = {
        "features": torch.ones(2, 3),
        "indices": torch.tensor([[0, 1, 2], [0, 3, 1]], dtype=torch.int32),
        "spatial_shape": [4, 4],
        "batch_size": 1,
    }
    return SparseConvTensor(**{**given, **changed})  # type: ignore[arg-type]


def rows(*values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"features": torch.ones(2, 3).int()}, TypeError, "features must be float32"),
        ({"features": torch.ones(2)}, ValueError, "features must be 2-dimensional"),
        ({"features": [[1.0]]}, TypeError, "features must be a torch.Tensor, got list"),
        ({"features": torch.ones(3, 3)}, ValueError, "features must be of 2 rows as indices has"),
        ({"indices": rows([0, 1, 2], [0, 3, 1]).short()}, TypeError, "indices must be int32"),
        (
            {"indices": rows([0, 1, 2], [0, 3, 1]).long() + 2**31},
            ValueError,
            r"indices must be within int32, got 2147483648\.\.2147483651",
        ),
        ({"spatial_shape": [4, 4, 4]}, ValueError, r"spatial_shape must be of 2 entries"),
        ({"spatial_shape": 4}, TypeError, "spatial_shape must be 2 integers, got 4"),
        ({"spatial_shape": [4, 4.5]}, ValueError, "spatial_shape axis 1 must be an integer"),
        ({"spatial_shape": [4, 0]}, ValueError, "spatial_shape axis 1 must be in"),
        ({"batch_size": 0}, ValueError, "batch_size must be > 0"),
        (
            {"indices": rows([0, 1, 2], [1, 3, 1])},
            ValueError,
            r"indices column 0 \(batch id\) must be in \[0, 1\), got 1",
        ),
        (
            {"indices": rows([0, 1, 2], [0, 3, 4])},
            ValueError,
            r"indices column 2 \(axis 1\) must be in \[0, 4\), got 4",
        ),
        (
            {"indices": rows([0, 1, 2], [0, -1, 1])},
            ValueError,
            r"indices column 1 \(axis 0\) must be in \[0, 4\), got -1",
        ),
        (
            {"indices": rows([0, 1, 2], [0, 1, 2])},
            ValueError,
            r"indices must be distinct, got \[0, 1, 2\] in rows 0 and 1; merge them",
        ),
    ],
)
def test_bad_input_is_named(changed, error: type[Exception], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        make(**changed)


def test_check_can_be_skipped() -> None:
    x = make(indices=rows([0, 1, 2], [0, 1, 2]), check=False)
    assert x.coalesce().features.tolist() == [[2.0] * 3]
    assert x.coalesce("mean").features.tolist() == [[1.0] * 3]
    with pytest.raises(ValueError, match="reduc"):
        x.coalesce("median")


def test_attributes_of_spconv() -> None:
    x = make(grid=torch.zeros(3), voxel_num=torch.tensor([2]), benchmark=True, force_algo=1)
    assert x.spatial_shape == [4, 4]
    assert x.spatial_size == 16
    assert x.indice_dict == {}
    assert x.benchmark
    assert x.force_algo == 1
    assert x.int8_scale is None
    assert not x.is_quantized
    assert x.grid.shape == (3,)
    assert x.voxel_num.tolist() == [2]
    assert len(x) == 2
    assert make().grid.numel() == 0
    with pytest.raises(ValueError, match="replace_feature"):
        x.features = x.features
    assert repr(x) == (
        "SparseConvTensor(features=[2, 3] float32 cpu, grid=[4, 4], batch_size=1, density=12.50%)"
    )


def test_dense_and_back() -> None:
    x = scene()
    dense = x.dense()
    assert dense.shape == (2, 4, 8, 7, 6)
    assert dense.is_contiguous()
    assert torch.equal(x.dense(channels_first=False), dense.movedim(1, -1))
    back = SparseConvTensor.from_dense(x.dense(False))
    assert back.spatial_shape == [8, 7, 6]
    assert torch.equal(back.dense(), dense)
    with pytest.raises(ValueError, match="x must be of shape"):
        SparseConvTensor.from_dense(torch.zeros(3, 3))


def test_dense_is_differentiable_and_duplicates_do_not_add() -> None:
    x = make(indices=rows([0, 1, 2], [0, 1, 2]), check=False)
    features = torch.tensor([[1.0] * 3, [5.0] * 3], requires_grad=True)
    dense = x.replace_feature(features).dense()
    assert dense[0, :, 1, 2].tolist() == [1.0] * 3
    dense.sum().backward()
    assert features.grad.tolist() == [[1.0] * 3, [0.0] * 3]


# ----------------------------------------------------------------------- features and indices


def test_replace_feature_shares_sites_and_keys() -> None:
    x = scene()
    y = x.replace_feature(torch.zeros(80, 2))
    assert y.indices is x.indices
    assert y.indice_dict is x.indice_dict
    assert x.features.shape == (80, 4)
    assert x.shadow_copy().features is x.features


def test_select_by_index() -> None:
    x = spnn.SubMConv3d(4, 4, 3, indice_key="a")(scene())
    mask = x.features[:, 0] > 0
    for chosen in (mask, mask.nonzero()[:, 0]):
        y = x.select_by_index(chosen)
        assert torch.equal(y.features, x.features[mask])
        assert torch.equal(y.indices, x.indices[mask])
        assert y.indice_dict == {}
    spnn.SubMConv3d(4, 4, 3, indice_key="a")(y)


def test_arithmetic() -> None:
    x = scene()
    y = x.replace_feature(torch.randn(80, 4))
    assert torch.equal((x + y).features, x.features + y.features)
    assert torch.equal((x - y).features, x.features - y.features)
    assert torch.equal((x * y).features, x.features * y.features)
    assert torch.equal((x / 2).features, x.features / 2)
    assert torch.equal((3 + x * 2 + torch.ones(4)).features, 3 + x.features * 2 + 1)
    assert torch.equal((1 - x).features, 1 - x.features)
    assert torch.equal((torch.ones(4) / x).features, 1 / x.features)
    assert torch.equal((-x).features, x.minus().features)
    total = x
    total += y
    assert torch.equal(total.features, x.features + y.features)
    with pytest.raises(TypeError, match="operand must be a SparseConvTensor, tensor or number"):
        x + "one"


def test_union_sum_and_cat() -> None:
    x, y = scene(rows=40), scene(rows=50)
    torch.testing.assert_close((x + y).dense(), x.dense() + y.dense())
    torch.testing.assert_close((x - y).dense(), x.dense() - y.dense())
    joined = sparse3d.cat(x, y)
    torch.testing.assert_close(joined.dense(), torch.cat([x.dense(), y.dense()], 1))
    aligned = sparse3d.cat(x, x)
    assert aligned.indices is x.indices
    with pytest.raises(ValueError, match="operands must be on the same sites"):
        x * y
    with pytest.raises(ValueError, match="channel count"):
        sparse3d.add(x, y.replace_feature(y.features[:, :2]))
    with pytest.raises(ValueError, match="of one grid and batch size"):
        sparse3d.add(x, scene(rows=9, batch_size=3))
    order = sparse3d.add(x, y).indices
    assert order[:, 0].diff().ge(0).all()


def test_rows_that_do_not_fit_are_refused_where_tensors_are_combined() -> None:
    x, other = scene(), scene(rows=40)
    short = x.replace_feature(torch.ones(1, 4))
    with pytest.raises(ValueError, match="features must be of 80 rows as the other operand has"):
        x + short
    for combine in (sparse3d.add, sparse3d.cat, lambda *given: sparse3d.collate(given)):
        with pytest.raises(ValueError, match="features must be of 80 rows as indices has"):
            combine(other, short)


# --------------------------------------------------------------------- moving and copying


def test_conversions() -> None:
    x = spnn.SubMConv3d(4, 4, 3, indice_key="a")(scene())
    for name, dtype in (
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("double", torch.float64),
    ):
        y = getattr(x, name)()
        assert y.dtype == dtype
        assert y.indices is x.indices
        assert y.find_indice_pair("a") is x.find_indice_pair("a")
    assert x.to("cpu", torch.float16).dtype == torch.float16
    assert x.cpu().device.type == "cpu"
    assert not x.detach().features.requires_grad
    moved = x.to("meta")
    assert moved.indices.device.type == "meta"
    assert moved.find_indice_pair("a").kernel_map.src.device.type == "meta"
    assert moved.find_indice_pair("a").kernel_map.splits.device.type == "cpu"


def test_pickle_and_deepcopy() -> None:
    layer = spnn.SubMConv3d(4, 4, 3, indice_key="a")
    x = layer(scene()).detach()
    for twin in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert torch.equal(twin.features, x.features)
        assert torch.equal(twin.indices, x.indices)
        assert list(twin.indice_dict) == ["a"]
        assert torch.equal(layer(twin).features, layer(x).features)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False).features, x.features)


class Scenes(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> SparseConvTensor:
        torch.manual_seed(index)
        return scene(rows=20 * index, batch_size=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_with_collate(workers: int) -> None:
    loader = DataLoader(Scenes(), batch_size=4, num_workers=workers, collate_fn=sparse3d.collate)
    (batch,) = loader
    assert batch.batch_size == 4
    assert len(batch) == 120
    layer = spnn.SubMConv3d(4, 2, 3)
    out = layer(batch)
    for index, (features, indices) in enumerate(sparse3d.decompose(out)):
        alone = layer(Scenes()[index])
        torch.testing.assert_close(features, alone.features)
        assert torch.equal(indices[:, 1:], alone.indices[:, 1:])


def test_collate_refuses() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        sparse3d.collate([])
    with pytest.raises(ValueError, match="of one grid"):
        sparse3d.collate([scene(), scene(rows=9, shape=(9, 9, 9))])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_pin_memory() -> None:
    x = scene().pin_memory()
    assert x.features.is_pinned()
    assert x.indices.is_pinned()


# ---------------------------------------------------------------------------------- mutation


def test_indices_edited_in_place_are_noticed() -> None:
    layer = spnn.SubMConv3d(4, 4, 3)
    x = scene()
    layer(x)
    x.indices[:, 1:] = x.indices[:, 1:].flip(0)
    x.indices[:, 0] = x.indices[:, 0].flip(0)
    fresh = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, 2)
    assert torch.equal(layer(x).features, layer(fresh).features)


def test_indices_edited_in_place_are_noticed_in_inference_mode() -> None:
    layer = spnn.SubMConv3d(4, 4, 3)
    with torch.inference_mode():
        x = scene()
        layer(x)
        x.indices[:, 1] = 7 - x.indices[:, 1]
        fresh = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, x.batch_size)
        assert torch.equal(layer(x).features, layer(fresh).features)


def test_a_scene_evaluated_in_inference_mode_can_be_trained_on() -> None:
    x = scene()
    model = spnn.SparseSequential(
        spnn.SubMConv3d(4, 4, 1),
        spnn.SubMConv3d(4, 4, 3),
        spnn.SparseConv3d(4, 4, 3, 2, 1, indice_key="down"),
        spnn.SparseInverseConv3d(4, 4, 3, "down"),
        spnn.SparseConv3d(4, 4, 2, 2, rule="floor"),
        spnn.SparseMaxPool3d(2),
        spnn.SparseConvTranspose3d(4, 4, 2, 2),
    )
    with torch.inference_mode():
        expected = model(x).features.clone()
    out = model(x).features
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert all(value.grad is not None for value in model.parameters())


def test_indices_edited_in_place_drop_a_kept_key() -> None:
    layer = spnn.SubMConv3d(4, 4, 3, indice_key="a")
    x = layer(scene())
    x.indices[:, 1:] = x.indices[:, 1:].flip(0)
    x.indices[:, 0] = x.indices[:, 0].flip(0)
    fresh = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, 2)
    assert torch.equal(layer(x).features, layer(fresh).features)


def test_assigned_indices_are_checked_by_the_next_layer() -> None:
    x = scene()
    y = x.replace_feature(x.features[:50])
    with pytest.raises(ValueError, match="features"):
        spnn.SubMConv3d(4, 4, 3)(y)
    y.indices = x.indices[:50]
    spnn.SubMConv3d(4, 4, 3)(y)
    y.indices = y.indices + 5
    with pytest.raises(ValueError, match=r"must be in \[0, "):
        spnn.SubMConv3d(4, 4, 3)(y)


class MultiScale(torch.nn.Module):
    """As detectors do: scale indices of deeper levels in place, join features first and indices
    after, flatten the height, and merge the duplicates that this makes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = spnn.SubMConv3d(4, 8, 3, indice_key="s")
        self.second = spnn.SparseConv3d(8, 8, 3, 2, 1, indice_key="d2")
        self.third = spnn.SparseConv3d(8, 8, 3, 2, 1, indice_key="d3")
        self.shared = spnn.SubMConv2d(8, 8, 3, indice_key="flat")

    def forward(self, x: SparseConvTensor) -> tuple[SparseConvTensor, SparseConvTensor]:
        first = self.first(x)
        second = self.second(first)
        third = self.third(second)
        third.indices[:, 1:] *= 2
        joined = second.replace_feature(torch.cat([second.features, third.features]))
        joined.indices = torch.cat([second.indices, third.indices])
        flat = torch.cat([joined.indices[:, :1], joined.indices[:, 2:]], 1)
        sites, inverse = torch.unique(flat, dim=0, return_inverse=True)
        merged = torch.zeros(len(sites), 8).index_add(0, inverse, joined.features)
        made = SparseConvTensor(merged, sites.int(), joined.spatial_shape[1:], x.batch_size)
        return joined, self.shared(made)


def test_model_that_mutates_runs_and_learns() -> None:
    model, x = MultiScale(), scene()
    joined, out = model(x)
    rows_of_second = model.second(model.first(x))
    assert len(joined) > len(rows_of_second)
    assert joined.indices[len(rows_of_second) :, 1:].remainder(2).eq(0).all()
    again_joined, again = model(x)
    assert torch.equal(out.features, again.features)
    assert torch.equal(joined.indices, again_joined.indices)
    out.features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_layers_accept_duplicates_made_on_the_way() -> None:
    """Joined tensors repeat sites; the lowest row answers, nothing crashes."""
    x = scene()
    twice = x.replace_feature(torch.cat([x.features, x.features]))
    twice.indices = torch.cat([x.indices, x.indices])
    layer = spnn.SubMConv3d(4, 4, 3)
    out = layer(twice)
    torch.testing.assert_close(out.features[:80], layer(x).features, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.features[80:], out.features[:80])
    down = spnn.SparseConv3d(4, 4, 2, 2)(twice)
    assert torch.equal(down.coalesce().indices, down.indices)


def test_gradient_through_a_mutated_key() -> None:
    """A third party keeps `indice_dict` of an older tensor; reuse is checked, not trusted."""
    x = scene()
    layer = spnn.SubMConv3d(4, 4, 3, indice_key="a")
    y = layer(x)
    z = SparseConvTensor(y.features[:40], y.indices[:40], y.spatial_shape, 2)
    z.indice_dict = y.indice_dict
    with pytest.raises(ValueError, match="used on the sites it was made for"):
        layer(z)


def test_undoing_a_layer_whose_sites_were_edited_is_refused() -> None:
    down, up = spnn.SparseConv3d(4, 4, 2, 2, indice_key="d"), spnn.SparseInverseConv3d(4, 4, 2, "d")
    x = scene()
    middle = pickle.loads(pickle.dumps(down(x).detach()))
    up(middle)
    middle.indices[:, 1:] //= 2
    with pytest.raises(ValueError, match="'d' must be that of a layer whose sites stayed"):
        up(middle)


def test_compiled_code_carries_every_attribute_over():
    """`torch.compile` copies by name what eager code copies whole."""
    from sparse3d.tensor import sparse_conv_tensor as module

    x = SparseConvTensor(torch.ones(1, 2), torch.zeros(1, 4, dtype=torch.int32), [4] * 3, 1)
    assert set(vars(x)) == {*module._CARRIED, "_features", "indice_dict"}
