"""Convolution layers: parameters, agreement with dense layers, keys, messages."""

from __future__ import annotations

import pytest
import torch
from nn.scenes import at, scene
from torch.nn import functional

import sparse3d.nn as spnn

DENSE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
SHAPES = {1: (40,), 2: (12, 11), 3: (8, 7, 6), 4: (5, 4, 4, 3)}


def true_weight(layer: spnn.SparseConvolution) -> torch.Tensor:
    """[out, in / groups, *kernel], as torch has it."""
    return layer.kernel().movedim(-1, 1)


# ------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("family", ["SubMConv", "SparseConv", "SparseConvTranspose"])
def test_state_dict_has_spconvs_keys_and_shapes(family: str, ndim: int) -> None:
    layer = getattr(spnn, f"{family}{ndim}d")(3, 5, 3)
    shapes = {key: tuple(value.shape) for key, value in layer.state_dict().items()}
    assert shapes == {"weight": (5, *[3] * ndim, 3), "bias": (5,)}
    assert "bias" not in getattr(spnn, f"{family}{ndim}d")(3, 5, 3, bias=False).state_dict()


def test_inverse_layer_takes_its_key_fourth() -> None:
    layer = spnn.SparseInverseConv3d(3, 5, 2, "down")
    assert layer.indice_key == "down"
    assert layer.weight.shape == (5, 2, 2, 2, 3)


def test_record_voxel_count_is_a_buffer_that_may_be_missing() -> None:
    layer = spnn.SparseConv3d(4, 4, 3, 2, 1, record_voxel_count=True)
    assert layer.state_dict()["max_num_voxels_during_training"].tolist() == [0]
    out = layer(scene())
    assert layer.get_max_num_voxels().tolist() == [len(out)]
    layer.eval()(scene(rows=300))
    assert layer.get_max_num_voxels().tolist() == [len(out)]
    plain = spnn.SparseConv3d(4, 4, 3, 2, 1).state_dict()
    assert layer.load_state_dict(plain).missing_keys == []
    assert layer.get_max_num_voxels().tolist() == [0]
    assert spnn.SubMConv3d(4, 4, 3).get_max_num_voxels() is None


@pytest.mark.parametrize(
    ("layer", "quirk"),
    [
        (spnn.SubMConv3d(3, 5, 1), True),
        (spnn.SparseConv3d(3, 5, 1), True),
        (spnn.SparseConvTranspose3d(3, 5, 1), True),
        (spnn.SparseConv3d(3, 5, 1, stride=2), False),
        (spnn.SparseInverseConv3d(3, 5, 1, "k"), False),
        (spnn.SubMConv3d(4, 6, 1, groups=2), False),
        (spnn.SubMConv3d(3, 5, 3), False),
    ],
)
def test_storage_of_1x1_layers(layer: spnn.SparseConvolution, quirk: bool) -> None:
    """spconv 2.x multiplies by `weight.view(in, out)` in exactly these layers."""
    stored, kernel = layer.weight, layer.kernel()
    assert kernel.shape == stored.shape
    if quirk:
        assert torch.equal(kernel.reshape(5, 3), stored.reshape(3, 5).t())
        if layer.subm:
            x = scene(3)
            wanted = x.features @ stored.reshape(3, 5) + layer.bias
            torch.testing.assert_close(layer(x).features, wanted)
    else:
        assert torch.equal(kernel, stored)
    layer.set_kernel(kernel.clone())
    assert torch.equal(layer.kernel(), kernel)
    with pytest.raises(ValueError, match="kernel must be of shape"):
        layer.set_kernel(kernel[..., :1])


def test_initialisation_is_spconvs() -> None:
    layer = spnn.SubMConv3d(16, 64, 3)
    bound = (16 * 27) ** -0.5
    assert layer.weight.abs().max() <= bound
    assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert layer.bias.abs().max() <= bound


# ------------------------------------------------------------------------- against dense torch


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_submanifold_equals_dense_at_its_sites(ndim: int, groups: int) -> None:
    x = scene(4, 30, SHAPES[ndim], dtype=torch.float64)
    layer = getattr(spnn, f"SubMConv{ndim}d")(4, 8, 3, dilation=2, groups=groups).double()
    out = layer(x)
    dense = DENSE[ndim](x.dense(), true_weight(layer), layer.bias, 1, 2, 2, groups)
    assert out.indices is x.indices
    torch.testing.assert_close(out.features, at(dense, out))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(3, 2, 1, 1), (2, 2, 0, 1), (3, 1, 1, 1), ((3, 1, 2), (2, 1, 1), (0, 0, 1), (1, 1, 2))],
)
def test_strided_equals_dense(kernel, stride, padding, dilation, groups: int) -> None:  # type: ignore[no-untyped-def]
    x = scene(4, 40, dtype=torch.float64)
    layer = spnn.SparseConv3d(4, 8, kernel, stride, padding, dilation, groups).double()
    out = layer(x)
    dense = functional.conv3d(
        x.dense(), true_weight(layer), layer.bias, stride, padding, dilation, groups
    )
    assert out.spatial_shape == list(dense.shape[2:])
    torch.testing.assert_close(out.features, at(dense, out))
    reached = functional.conv3d(
        (x.dense().abs().sum(1, keepdim=True) > 0).double(),
        torch.ones(1, 1, *layer.kernel_size, dtype=torch.float64),
        None,
        stride,
        padding,
        dilation,
    )
    assert len(out) == int((reached > 0).sum())


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_equals_dense(ndim: int, groups: int) -> None:
    x = scene(4, 12, SHAPES[ndim], dtype=torch.float64)
    layer = getattr(spnn, f"SparseConvTranspose{ndim}d")(4, 6, 3, 2, 1, groups=groups).double()
    out = layer(x)
    weight = layer.kernel().unflatten(0, (groups, -1)).movedim(-1, 1).flatten(0, 1)
    dense_layer = getattr(functional, f"conv_transpose{ndim}d")
    dense = dense_layer(x.dense(), weight, layer.bias, 2, 1, 0, groups)
    assert out.spatial_shape == list(dense.shape[2:])
    torch.testing.assert_close(out.features, at(dense, out))


def test_inverse_equals_transposed_at_the_old_sites() -> None:
    x = scene(4, 50, dtype=torch.float64)
    down = spnn.SparseConv3d(4, 6, 3, 2, 1, indice_key="down").double()
    up = spnn.SparseInverseConv3d(6, 5, 3, "down").double()
    middle = down(x)
    out = up(middle)
    assert out.indices is x.indices
    assert out.spatial_shape == x.spatial_shape
    weight = up.kernel().movedim(-1, 0).movedim(1, 1)
    extra = [n - ((m - 1) * 2 - 2 + 3) for n, m in zip([8, 7, 6], middle.spatial_shape)]  # noqa: B905
    dense = functional.conv_transpose3d(middle.dense(), weight, up.bias, 2, 1, output_padding=extra)
    torch.testing.assert_close(out.features, at(dense, out))


def test_inverse_1x1_restores_the_sites() -> None:
    x = scene()
    down = spnn.SparseConv3d(4, 4, 1, 2, indice_key="down")
    out = spnn.SparseInverseConv3d(4, 3, 1, "down")(down(x))
    assert out.indices is x.indices


def test_four_axes_agree_with_folded_time() -> None:
    """Kernel 1 on the first axis: the same as three axes with that axis in the batch."""
    x = scene(4, 60, SHAPES[4], 1, torch.float64)
    layer = spnn.SubMConv4d(4, 3, (1, 3, 3, 3)).double()
    flat = spnn.SparseConvTensor(
        x.features, torch.cat([x.indices[:, 1:2], x.indices[:, 2:]], 1), SHAPES[4][1:], 5
    )
    twin = spnn.SubMConv3d(4, 3, 3).double()
    twin.set_kernel(layer.kernel()[:, 0])
    twin.bias = layer.bias
    torch.testing.assert_close(layer(x).features, twin(flat).features)


def test_residual_and_activation() -> None:
    x = scene()
    layer = spnn.SparseConvolution(3, 4, 4, 3, subm=True, act_type="leaky_relu", act_alpha=0.2)
    plain = spnn.SparseConvolution(3, 4, 4, 3, subm=True)
    plain.load_state_dict(layer.state_dict())
    wanted = functional.leaky_relu(plain(x).features + x.features, 0.2)
    torch.testing.assert_close(layer(x, add_input=x).features, wanted)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, add_input=x).features, wanted)
    with pytest.raises(ValueError, match="add_input must be of 80 rows"):
        layer(x, add_input=scene(rows=9))


def test_a_residual_of_another_width_is_refused() -> None:
    x = scene()
    with pytest.raises(ValueError, match="add_input: input features must be of 6 channels, got 1"):
        spnn.SubMConv3d(4, 6, 3)(x, x.replace_feature(x.features[:, :1]))


def test_floor_rule_keeps_minkowskis_sites() -> None:
    x = scene()
    out = spnn.SparseConv3d(4, 4, 3, 2, 1, rule="floor")(x)
    wanted = {(b, i // 2, j // 2, k // 2) for b, i, j, k in x.indices.tolist()}
    assert {tuple(row) for row in out.indices.tolist()} == wanted


# -------------------------------------------------------------------------------- indice_key


def test_submanifold_layers_share_a_key() -> None:
    x = scene()
    first, second = (
        spnn.SubMConv3d(4, 4, 3, indice_key="a"),
        spnn.SubMConv3d(4, 4, 3, indice_key="a"),
    )
    middle = first(x)
    assert x.indice_dict == {}
    assert list(middle.indice_dict) == ["a"]
    out = second(middle)
    assert out.find_indice_pair("a") is middle.find_indice_pair("a")
    assert out.find_indice_pair(None) is None


def keyed(x: spnn.SparseConvTensor) -> spnn.SparseConvTensor:
    return spnn.SubMConv3d(4, 4, 3, indice_key="a")(x)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            spnn.SubMConv3d(4, 4, 5, indice_key="a"),
            r"SubMConv3d: indice_key 'a' must be that of a layer with kernel_size=\[5, 5, 5\].*"
            r"got one with kernel_size=\[3, 3, 3\].*; give this layer a key of its own",
        ),
        (
            spnn.SubMConv3d(4, 4, 3, dilation=2, indice_key="a"),
            r"dilation=\[2, 2, 2\], got one with .*dilation=\[1, 1, 1\]",
        ),
        (
            spnn.SparseConv3d(4, 4, 3, 2, 1, indice_key="a"),
            r"SparseConv3d: indice_key 'a' must be shared by submanifold layers alone",
        ),
        (
            spnn.SparseInverseConv3d(4, 4, 3, "a"),
            r"indice_key 'a' must be that of a strided layer or pool, got a submanifold layer's",
        ),
        (
            spnn.SparseInverseConv3d(4, 4, 3, "b"),
            r"indice_key 'b' must be left by an earlier layer .*, got no such key",
        ),
        (spnn.SparseMaxPool3d(2, indice_key="a"), r"indice_key 'a' must be new for a pool"),
    ],
)
def test_wrong_reuse_of_a_key_names_both(layer: torch.nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(keyed(scene()))


def test_key_on_other_sites_is_refused() -> None:
    x = keyed(scene())
    layer = spnn.SubMConv3d(4, 4, 3, indice_key="a")
    fewer = x.select_by_index(torch.arange(50))
    fewer.indice_dict = x.indice_dict
    with pytest.raises(ValueError, match=r"made for \(80 rows.*got 50 rows"):
        layer(fewer)
    moved = spnn.SparseConvTensor(x.features, x.indices.flip(0), [8, 7, 6], 2)
    moved.indice_dict = x.indice_dict
    with pytest.raises(ValueError, match="at other positions"):
        layer(moved)
    larger = spnn.SparseConvTensor(x.features, x.indices, [9, 9, 9], 2)
    larger.indice_dict = x.indice_dict
    with pytest.raises(ValueError, match=r"got 80 rows, grid \[9, 9, 9\]"):
        layer(larger)


def test_strided_keys_are_used_once_and_undone() -> None:
    x = scene()
    down = spnn.SparseConv3d(4, 4, 3, 2, 1, indice_key="d")
    middle = down(x)
    with pytest.raises(ValueError, match="shared by submanifold layers alone"):
        down(middle)
    with pytest.raises(ValueError, match=r"kernel_size=\[2, 2, 2\]"):
        spnn.SparseInverseConv3d(4, 4, 2, "d")(middle)
    with pytest.raises(ValueError, match="used on the sites it was made for"):
        spnn.SparseInverseConv3d(4, 4, 3, "d")(spnn.SparseConv3d(4, 4, 3, 2, 1)(middle))
    pool = spnn.SparseMaxPool3d(2, indice_key="p")
    assert spnn.SparseInverseConv3d(4, 4, 2, "p")(pool(x)).indices is x.indices


def test_messages_name_the_layer_by_its_path() -> None:
    model = torch.nn.Sequential(spnn.SubMConv3d(5, 4, 3))
    spnn.assign_name_for_sparse_modules(model)
    with pytest.raises(ValueError, match="SubMConv3d '0': input features must be of 5 channels"):
        model(scene())


# -------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: spnn.SubMConv3d(4, 4, 2), ValueError, "kernel_size must be odd on every axis"),
        (lambda: spnn.SubMConv3d(4, 4, 3, 2), ValueError, "stride must be 1"),
        (lambda: spnn.SparseConv3d(4, 4, (3, 3)), ValueError, "kernel_size must have 3 entries"),
        (lambda: spnn.SparseConv3d(4, 4, 3.5), TypeError, "kernel_size must be an integer"),
        (lambda: spnn.SparseConv3d(4, 4, 3, 0), ValueError, "stride must be >= 1"),
        (lambda: spnn.SparseConv3d(4, 4, 3, padding=-1), ValueError, "padding must be >= 0"),
        (lambda: spnn.SparseConv3d(4, 6, 3, groups=4), ValueError, "multiples of groups=4"),
        (lambda: spnn.SparseConv3d(0, 6, 3), ValueError, "in_channels must be > 0"),
        (lambda: spnn.SparseConv3d(4, 4, 1, padding=1), ValueError, "padding must be 0"),
        (lambda: spnn.SparseInverseConv3d(4, 4, 3, None), ValueError, "indice_key must be given"),
        (lambda: spnn.SparseConv3d(4, 4, 3, rule="x"), ValueError, "rule must be one of"),
        (
            lambda: spnn.SparseConvolution(3, 4, 4, act_type="tanh"),
            ValueError,
            "act_type must be one of",
        ),
        (
            lambda: spnn.SparseConvTranspose3d(4, 4, 3, 2, output_padding=2),
            ValueError,
            "output_padding axis 0 must be below the stride",
        ),
    ],
)
def test_wrong_constructor(make, error: type[Exception], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        make()


def test_wrong_inputs() -> None:
    layer = spnn.SubMConv3d(4, 4, 3)
    with pytest.raises(TypeError, match="input must be a SparseConvTensor, got Tensor"):
        layer(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="input must be of 3 axes, got 2"):
        layer(scene(shape=(12, 11)))
    with pytest.raises(TypeError, match="features and weight must be of one dtype"):
        layer(scene(dtype=torch.float64))
    with pytest.raises(ValueError, match=r"output grid must be at least 1 on every axis"):
        spnn.SparseConv3d(4, 4, 9)(scene())


def test_padding_of_a_submanifold_layer_means_nothing() -> None:
    x = scene()
    layer, padded = spnn.SubMConv3d(4, 4, 3), spnn.SubMConv3d(4, 4, 3, padding=1)
    padded.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x).features, padded(x).features)


# ------------------------------------------------------------------------------- small scenes


@pytest.mark.parametrize("training", [True, False])
def test_empty_input_passes_through_everything(training: bool) -> None:
    x = scene(rows=0)
    x = x.replace_feature(x.features.requires_grad_())
    model = spnn.SparseSequential(
        spnn.SubMConv3d(4, 6, 3, indice_key="s"),
        spnn.SparseBatchNorm(6),
        torch.nn.ReLU(),
        spnn.SparseConv3d(6, 8, 3, 2, 1, indice_key="d"),
        torch.nn.BatchNorm1d(8),
        spnn.SparseMaxPool3d(2, indice_key="p"),
        spnn.SparseInverseConv3d(8, 8, 2, "p"),
        spnn.SparseInverseConv3d(8, 4, 3, "d"),
        spnn.SparseConvTranspose3d(4, 2, 2, 2),
    ).train(training)
    out = model(x)
    assert out.features.shape == (0, 2)
    assert out.spatial_shape == [16, 14, 12]
    out.features.sum().backward()
    assert x.features.grad.shape == (0, 4)
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert spnn.SparseGlobalMaxPool()(out).shape == (2, 2)


def test_single_voxel_trains() -> None:
    """torch's BatchNorm1d refuses one row; a scene may well have one voxel."""
    x = scene(rows=1)
    for norm in (torch.nn.BatchNorm1d(4), spnn.SparseBatchNorm(4)):
        model = spnn.SparseSequential(spnn.SubMConv3d(4, 4, 3), norm, spnn.SparseReLU())
        out = model(x)
        out.features.sum().backward()
        assert out.features.isfinite().all()
        assert model[0].weight.grad.isfinite().all()


def test_empty_sample_in_a_batch() -> None:
    x = scene(batch_size=1)
    wide = spnn.SparseConvTensor(x.features, x.indices, x.spatial_shape, 3)
    layer = spnn.SparseConv3d(4, 4, 3, 2, 1)
    assert torch.equal(layer(wide).features, layer(x).features)
    assert layer(wide).dense().shape[0] == 3


def test_no_grid_and_negative_positions() -> None:
    x = scene()
    free = spnn.SparseConvTensor(x.features, x.indices - 3 * (torch.arange(4) > 0).int(), None, 2)
    layer = spnn.SubMConv3d(4, 4, 3)
    assert torch.equal(layer(free).features, layer(x).features)
    with pytest.raises(ValueError, match=r"spatial_shape must be stated for dense\(\)"):
        free.dense()


def test_gradients_reach_weights_bias_and_features() -> None:
    x = scene(dtype=torch.float64, rows=12)
    layer = spnn.SparseConv3d(4, 2, 3, 2, 1).double()

    def run(features: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        swapped = {"weight": weight, "bias": bias}
        made = torch.func.functional_call(layer, swapped, (x.replace_feature(features),))
        return made.features

    inputs = (x.features.requires_grad_(), layer.weight, layer.bias)
    assert torch.autograd.gradcheck(run, inputs)


def test_layer_runs_in_half_precision_and_autocast() -> None:
    x = scene()
    layer = spnn.SubMConv3d(4, 4, 3)
    wanted = layer(x).features
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            assert layer(x).features.dtype == dtype
        low = spnn.SubMConv3d(4, 4, 3)
        low.load_state_dict(layer.state_dict())
        out = low.to(dtype)(x.to(dtype)).features
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), wanted, rtol=0.05, atol=0.05)
