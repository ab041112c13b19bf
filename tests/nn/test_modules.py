"""Containers, norms, tables, pools, fusion."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict

import pytest
import torch
from nn.scenes import at, scene
from torch import nn
from torch.func import functional_call
from torch.nn import functional

import sparse3d.nn as spnn
from sparse3d.ops import _again

# --------------------------------------------------------------------------------- sequential


def test_sequential_routes_children() -> None:
    x = scene()
    seen: list[type] = []

    class Spy(nn.Module):
        def forward(self, value: object) -> object:
            seen.append(type(value))
            return value

    class SparseSpy(spnn.SparseModule):
        def forward(self, value: object) -> object:
            seen.append(type(value))
            return value

    model = spnn.SparseSequential(
        Spy(), SparseSpy(), nn.Linear(4, 3), spnn.SparseReLU(), spnn.ToDense(), Spy()
    )
    out = model(x)
    assert seen == [torch.Tensor, spnn.SparseConvTensor, torch.Tensor]
    assert out.shape == (2, 3, 8, 7, 6)


def test_sequential_names_and_access() -> None:
    children = OrderedDict(first=nn.ReLU(), second=spnn.SubMConv3d(4, 4, 3))
    model = spnn.SparseSequential(children)
    assert list(model.state_dict()) == ["second.weight", "second.bias"]
    model = spnn.SparseSequential(nn.ReLU(), spnn.SubMConv3d(4, 4, 3), last=nn.ReLU())
    assert list(model._modules) == ["0", "1", "last"]
    model.add(nn.Linear(4, 4), "head")
    model.add(nn.ReLU())
    assert len(model) == 5
    assert model[-1] is list(model)[4]
    with pytest.raises(IndexError, match=r"index must be in \[-5, 5\), got 5"):
        model[5]
    with pytest.raises(ValueError, match="name must be not taken"):
        model.add(nn.ReLU(), "head")


def test_sequential_equals_its_layers_one_by_one() -> None:
    x = scene()
    model = spnn.SparseSequential(
        spnn.SubMConv3d(4, 6, 3, bias=False), nn.BatchNorm1d(6), nn.ReLU(), spnn.SubMConv3d(6, 2, 1)
    )
    out = x
    twin = copy.deepcopy(model)
    for layer in twin:
        sparse = isinstance(layer, spnn.SparseModule)
        out = layer(out) if sparse else out.replace_feature(layer(out.features))
    assert torch.equal(model(x).features, out.features)
    assert torch.equal(model[1].running_var, twin[1].running_var)


def test_nested_children_and_hooks() -> None:
    x = scene()
    inner = spnn.SparseSequential(spnn.SubMConv3d(4, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
    model = spnn.SparseSequential(inner, spnn.SubMConv3d(4, 4, 3)).eval()
    caught: list[torch.Tensor] = []
    inner[1].register_forward_hook(lambda _m, _i, out: caught.append(out))
    with torch.no_grad():
        model(x)
    assert len(caught) == 1


# -------------------------------------------------------------------------------------- norms


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_is_torchs(momentum: float | None) -> None:
    x = scene(rows=300, shape=(12, 12, 12))
    mine, theirs = spnn.SparseBatchNorm(4, momentum=momentum), nn.BatchNorm1d(4, momentum=momentum)
    for _ in range(2):
        features = x.features.clone().requires_grad_()
        twin = x.features.clone().requires_grad_()
        left, right = mine(x.replace_feature(features)).features, theirs(twin)
        torch.testing.assert_close(left, right)
        upstream = torch.randn_like(left)
        left.backward(upstream)
        right.backward(upstream)
        torch.testing.assert_close(features.grad, twin.grad)
        torch.testing.assert_close(mine.weight.grad, theirs.weight.grad)
    assert mine.state_dict().keys() == theirs.state_dict().keys()
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[key], value)
    mine.eval(), theirs.eval()
    torch.testing.assert_close(mine(x).features, theirs(x.features))
    torch.testing.assert_close(mine(x.features), theirs(x.features))


def test_batch_norm_bytes_do_not_depend_on_threads(threads) -> None:  # type: ignore[no-untyped-def]
    x = scene(rows=3000, shape=(20, 20, 20))
    made = []
    for count in (1, 2, 3):
        threads(count)
        norm = spnn.SparseBatchNorm(4)
        made.append((norm(x).features.detach(), norm.running_var.clone()))
    for out, variance in made[1:]:
        assert torch.equal(out, made[0][0])
        assert torch.equal(variance, made[0][1])


def test_small_modules() -> None:
    x = scene()
    assert torch.equal(spnn.SparseReLU()(x).features, x.features.relu())
    assert spnn.SparseIdentity()(x) is x
    assert spnn.Identity()(x) is x
    assert torch.equal(spnn.ToDense()(x), x.dense())
    assert spnn.RemoveGrid()(x).grid.numel() == 0
    assert spnn.modules.is_spconv_module(spnn.SparseReLU())
    assert spnn.modules.is_sparse_conv(spnn.SubMConv1d(1, 1, 1))
    assert not spnn.modules.is_sparse_conv(nn.Linear(1, 1))
    sync = spnn.SparseSyncBatchNorm(4).eval()
    torch.testing.assert_close(sync(x).features, x.features / (1 + sync.eps) ** 0.5)


# ------------------------------------------------------------------------------------- tables


def test_tables() -> None:
    x = scene()
    wide = spnn.SubMConv3d(4, 6, 3)(x)
    joined = spnn.JoinTable()([x, wide])
    assert torch.equal(joined.features, torch.cat([x.features, wide.features], 1))
    assert torch.equal(spnn.AddTable()([x, x, x]).features, x.features * 3)
    pair = spnn.ConcatTable(spnn.SparseReLU(), spnn.SparseIdentity())
    left, right = pair(x)
    assert torch.equal(left.features, x.features.relu())
    assert right is x
    branch = spnn.SparseSequential(
        spnn.ConcatTable().add(spnn.SubMConv3d(4, 4, 3)), spnn.AddTable()
    )
    assert branch(x).features.shape == (80, 4)
    with pytest.raises(ValueError, match="AddTable: tensor must be of 80 rows"):
        spnn.AddTable()([x, scene(rows=9)])
    with pytest.raises(ValueError, match="JoinTable: input must be at least one tensor"):
        spnn.JoinTable()([])
    other = scene(rows=30)
    total = spnn.tables.AddTableMisaligned()([x, other])
    torch.testing.assert_close(total.dense(), x.dense() + other.dense())


# -------------------------------------------------------------------------------------- pools


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(2, None, 0, 1), (3, 2, 1, 1), (3, 2, 0, 2)]
)
def test_max_pool_is_the_true_maximum(kernel, stride, padding, dilation) -> None:  # type: ignore[no-untyped-def]
    x = scene()
    x = x.replace_feature(x.features - 5)
    out = spnn.SparseMaxPool3d(kernel, stride, padding, dilation)(x)
    filled = torch.full_like(x.dense(), float("-inf"))
    filled.movedim(1, -1)[x.indices.long().unbind(1)] = x.features
    dense = functional.max_pool3d(
        functional.pad(filled, [padding] * 6, value=float("-inf")), kernel, stride, 0, dilation
    )
    assert torch.equal(out.features, at(dense, out))
    assert (out.features < 0).all()
    floored = spnn.SparseMaxPool3d(kernel, stride, padding, dilation, floor_at_zero=True)(x)
    assert not floored.features.any()


def test_pools_make_the_sites_of_a_conv() -> None:
    x = scene()
    conv = spnn.SparseConv3d(4, 4, 3, 2, 1)(x)
    for pool in (spnn.SparseMaxPool3d(3, 2, 1), spnn.SparseAvgPool3d(3, 2, 1)):
        assert torch.equal(pool(x).indices, conv.indices)


def test_mean_pool_counts_the_sites_present() -> None:
    x = scene(dtype=torch.float64)
    x = x.replace_feature(x.features.requires_grad_())
    out = spnn.SparseAvgPool3d(2)(x)
    ones = x.replace_feature(torch.ones_like(x.features))
    total = functional.avg_pool3d(x.dense(), 2)
    count = functional.avg_pool3d(ones.dense(), 2)
    wanted = at(total / count, out)
    torch.testing.assert_close(out.features, wanted)
    upstream = torch.randn_like(wanted)
    got = torch.autograd.grad(out.features, x.features, upstream, retain_graph=True)[0]
    torch.testing.assert_close(got, torch.autograd.grad(wanted, x.features, upstream)[0])


def test_global_pools_keep_every_channel_and_sample() -> None:
    x = scene(batch_size=2)
    wide = spnn.SparseConvTensor(x.features, x.indices, x.spatial_shape, 3)
    rows = [x.features[x.indices[:, 0] == b] for b in range(2)]
    mean = spnn.SparseGlobalAvgPool()(wide)
    largest = spnn.SparseGlobalMaxPool()(wide)
    assert mean.shape == largest.shape == (3, 4)
    for b in range(2):
        torch.testing.assert_close(mean[b], rows[b].mean(0))
        assert torch.equal(largest[b], rows[b].amax(0))
    assert not mean[2].any()
    assert torch.equal(spnn.pool.SparseGlobalMaxOrAvgPool(True)(wide), mean)


def test_pool_records_rows_and_names_1_to_4_axes() -> None:
    pool = spnn.SparseMaxPool3d(2, record_voxel_count=True)
    out = pool(scene())
    assert pool.get_max_num_voxels().tolist() == [len(out)]
    for ndim, shape in ((1, (30,)), (2, (9, 9)), (4, (4, 4, 4, 4))):
        out = getattr(spnn, f"SparseMaxPool{ndim}d")(2)(scene(rows=12, shape=shape))
        assert out.ndim == ndim


# ------------------------------------------------------------------------------------- fusion


def trained(groups: int = 1) -> spnn.SparseSequential:
    model = spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, bias=False, groups=groups),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        spnn.SparseConv3d(8, 6, 3, 2, 1),
        spnn.SparseBatchNorm(6),
        nn.LeakyReLU(0.2),
        spnn.SubMConv3d(6, 6, 1),
        nn.BatchNorm1d(6),
        spnn.SubMConv3d(6, 3, 3),
        nn.Sigmoid(),
    )
    for _ in range(3):
        model(scene(rows=150))
    return model.eval()


@pytest.mark.parametrize("groups", [1, 2])
def test_fuse_gives_the_same_numbers(groups: int) -> None:
    x, model = scene(), trained(groups)
    before = copy.deepcopy(model.state_dict())
    unfused = x
    for layer in model:
        unfused = (
            layer(unfused)
            if isinstance(layer, spnn.SparseModule | spnn.SparseBatchNorm)
            else unfused.replace_feature(layer(unfused.features))
        )
    fused = spnn.fuse(model)
    torch.testing.assert_close(fused(x).features, unfused.features, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(model(x).features, unfused.features, rtol=1e-5, atol=1e-6)
    assert sum(isinstance(m, spnn.SparseIdentity) for m in fused) == 6
    assert len(fused) == len(model)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("share", ["layer", "parameter", "layer of two sequences"])
def test_fuse_keeps_the_norms_of_a_kernel_that_serves_twice(share: str) -> None:
    first, norm = spnn.SubMConv3d(4, 4, 3), spnn.SparseBatchNorm(4)
    second = first
    if share == "parameter":
        second = spnn.SubMConv3d(4, 4, 3)
        second.weight = first.weight
    if share == "layer of two sequences":
        head = spnn.SparseSequential(first, norm)
        model = spnn.SparseSequential(head, spnn.SparseSequential(second, nn.LeakyReLU(0.2)))
    else:
        model = spnn.SparseSequential(first, norm, second, nn.LeakyReLU(0.2))
    x = scene()
    model(x)
    model.eval()
    torch.testing.assert_close(spnn.fuse(model)(x).features, model(x).features)


def test_fuse_keeps_the_norm_of_a_computed_weight() -> None:
    model, x = trained(), scene()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    assert isinstance(spnn.fuse(model)[1], nn.BatchNorm1d)
    torch.testing.assert_close(spnn.fuse(model)(x).features, model(x).features)


def test_fuse_leaves_frozen_layers_frozen() -> None:
    model = trained().requires_grad_(False)
    assert not any(value.requires_grad for value in spnn.fuse(model).parameters())


def test_fuse_leaves_a_training_model_alone() -> None:
    model = trained().train()
    fused = spnn.fuse(model)
    assert not any(isinstance(m, spnn.SparseIdentity) for m in fused)
    x = scene()
    assert torch.equal(fused(x).features, copy.deepcopy(model)(x).features)


@pytest.mark.parametrize("ending", ["relu", "sigmoid", "norm", "conv", "tanh", "identity"])
@pytest.mark.parametrize("mode", ["train", "grad", "eval", "fused"])
def test_a_residual_is_added_before_the_last_activation(ending: str, mode: str) -> None:
    endings: dict[str, list[nn.Module]] = {
        "relu": [spnn.SparseBatchNorm(6), spnn.SparseReLU()],
        "sigmoid": [nn.BatchNorm1d(6), nn.Sigmoid()],
        "norm": [spnn.SparseBatchNorm(6)],
        "conv": [],
        "tanh": [nn.Tanh()],
        "identity": [nn.LeakyReLU(0.2), spnn.SparseIdentity()],
    }
    first = [spnn.SubMConv3d(4, 8, 3), spnn.SparseBatchNorm(8), nn.ReLU()]
    net = spnn.SparseSequential(*first, spnn.SubMConv3d(8, 6, 3), *endings[ending])
    x = scene(rows=150)
    side = x.replace_feature(torch.randn(len(x.features), 6))
    for _ in range(3):
        net(x)
    model = spnn.fuse(net.eval()) if mode == "fused" else net.train(mode == "train")
    before = {"tanh": 5, "conv": 4, "norm": 5, "relu": 5, "sigmoid": 5, "identity": 4}[ending]
    before = len(net) if ending == "tanh" else before
    reference = copy.deepcopy(net)
    wanted = x
    for place, layer in enumerate([*reference, None]):
        if place == before:
            wanted = wanted + side
        if layer is not None:
            sparse = isinstance(layer, spnn.SparseModule | spnn.SparseBatchNorm | spnn.SparseReLU)
            wanted = (
                layer(wanted)
                if sparse or isinstance(layer, nn.Identity)
                else wanted.replace_feature(layer(wanted.features))
            )
    with torch.set_grad_enabled(mode in ("train", "grad")):
        got = model(x, add_input=side)
    torch.testing.assert_close(got.features, wanted.features, rtol=1e-5, atol=1e-6)
    assert got.features.requires_grad == (mode in ("train", "grad"))


def test_a_watched_activation_still_takes_the_residual_before_it() -> None:
    net = spnn.SparseSequential(spnn.SubMConv3d(4, 4, 3), spnn.SparseReLU()).eval()
    x = scene(rows=150)
    side = x.replace_feature(torch.randn(len(x.features), 4))
    with torch.no_grad():
        plain, seen = net(x, add_input=side), []
        net[1].register_forward_hook(lambda module, args, out: seen.append(out))
        watched = net(x, add_input=side)
    assert torch.equal(watched.features, seen[0].features)
    torch.testing.assert_close(watched.features, plain.features)


def test_a_norm_edited_between_two_calls_counts() -> None:
    model, x = trained(), scene()
    with torch.no_grad():
        model(x)
        model[1].weight.data.mul_(3)  # no version counts this
        model[1].running_var.mul_(2)
        wanted = spnn.fuse(model)(x).features
        torch.testing.assert_close(model(x).features, wanted, rtol=1e-5, atol=1e-6)


class TwiceConv(spnn.SubMConv3d):
    """As user code changes a layer: by its `forward`."""

    def forward(
        self, input: spnn.SparseConvTensor, add_input: spnn.SparseConvTensor | None = None
    ) -> spnn.SparseConvTensor:
        out = super().forward(input, add_input)
        return out.replace_feature(out.features * 2 + 1)


class ShiftedNorm(nn.BatchNorm1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + 5


class LowReLU(nn.ReLU):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) - 1


@pytest.mark.parametrize("at_place", [0, 1, 2])
@pytest.mark.parametrize("how", ["class", "attribute"])
def test_layers_with_a_forward_of_their_own_are_not_folded(at_place: int, how: str) -> None:
    layers: list[nn.Module] = [spnn.SubMConv3d(4, 4, 3), nn.BatchNorm1d(4), nn.ReLU()]
    if how == "class":
        layers[at_place] = (TwiceConv(4, 4, 3), ShiftedNorm(4), LowReLU())[at_place]
    nn.init.normal_(layers[1].running_mean)  # type: ignore[arg-type]
    if how == "attribute":
        before = layers[at_place].forward

        def patched(input: object, *rest: object) -> object:
            out = before(input, *rest)
            sparse = isinstance(out, spnn.SparseConvTensor)
            return out.replace_feature(out.features * 3) if sparse else out * 3

        layers[at_place].forward = patched  # type: ignore[method-assign]
    net, x = spnn.SparseSequential(*layers).eval(), scene()
    wanted = layers[0](x).features
    wanted = layers[2](layers[1](wanted))
    assert wanted.requires_grad
    torch.testing.assert_close(net(x).features, wanted)
    with torch.no_grad():
        torch.testing.assert_close(net(x).features, wanted)
        if how == "class":
            torch.testing.assert_close(spnn.fuse(net)(x).features, wanted)


def _norm_block(relu: nn.Module, norm: nn.Module | None = None) -> spnn.SparseSequential:
    torch.manual_seed(4)
    norm = norm or spnn.SparseBatchNorm(6)
    return spnn.SparseSequential(spnn.SubMConv3d(4, 6, 3, bias=False), norm, relu)


def _kinds(out: spnn.SparseConvTensor) -> str:
    return type(out.features.grad_fn).__name__


def _trained(run, model: nn.Module, x: spnn.SparseConvTensor) -> list[torch.Tensor]:
    features = x.features.clone().requires_grad_()
    out = run(x.replace_feature(features)).features
    torch.manual_seed(8)
    out.backward(torch.randn_like(out))
    grads = [p.grad for p in model.parameters()]
    return [out.detach(), features.grad, *grads, *model.buffers()]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [nn.ReLU(), nn.ReLU(inplace=True), spnn.SparseReLU()])
def test_norm_and_relu_train_in_one_pass_to_the_same_bytes(relu, residual) -> None:
    x, fused, plain = scene(), _norm_block(relu), _norm_block(relu)
    side = x.replace_feature(torch.randn(len(x.features), 6)) if residual else None

    def steps(value):
        out = plain[1](plain[0](value)).features
        out = out if side is None else out + side.features
        return value.replace_feature(torch.relu(out))

    assert "batch_norm_relu" in _kinds(fused(x, add_input=side))
    fused = _norm_block(relu)
    for got, wanted in zip(
        _trained(lambda v: fused(v, add_input=side), fused, x),
        _trained(steps, plain, x),
        strict=True,
    ):
        assert torch.equal(got, wanted)


def test_training_runs_one_by_one_where_a_module_is_watched_or_not_our_own() -> None:
    x = scene()

    class Doubled(spnn.SparseBatchNorm):
        def forward(self, input: object) -> object:
            out = super().forward(input)
            return out.replace_feature(2 * out.features)

    own = _norm_block(nn.ReLU(), Doubled(6))
    assert torch.equal(own(x).features, 2 * _norm_block(nn.ReLU())(x).features)
    assert "batch_norm_relu" not in _kinds(_norm_block(nn.ReLU6())(x))
    assert "batch_norm_relu" not in _kinds(_norm_block(nn.ReLU(), nn.BatchNorm1d(6))(x))

    for watch in ("register_forward_hook", "register_forward_pre_hook"):
        for position in (1, 2):
            seen: list[object] = []
            model = _norm_block(nn.ReLU())
            getattr(model[position], watch)(lambda *args, seen=seen: seen.append(args) and None)
            model(x)
            assert len(seen) == 1
    seen = []
    model = _norm_block(nn.ReLU())
    model[2].register_full_backward_hook(lambda *args: seen.append(args) and None)
    model(x).features.sum().backward()
    assert len(seen) == 1
    handle = nn.modules.module.register_module_forward_hook(
        lambda *args: seen.append(args) and None
    )
    try:
        _norm_block(nn.ReLU())(x)
    finally:
        handle.remove()
    assert len(seen) == 5  # conv, norm, ReLU and the container


def test_a_residual_of_another_type_or_width_is_added_as_before() -> None:
    x, model = scene(), _norm_block(nn.ReLU())
    wide = x.replace_feature(torch.randn(len(x.features), 6, dtype=torch.float64))
    assert model(x, add_input=wide).features.dtype == torch.float64
    with pytest.raises(RuntimeError, match="size"):
        model(x, add_input=x)
    one = x.replace_feature(torch.randn(len(x.features), 1))
    assert model(x, add_input=one).features.shape == (len(x.features), 6)


def _pair(relu: nn.Module, between: tuple[nn.Module, ...] = ()) -> spnn.SparseSequential:
    model = _norm_block(relu)
    for module in (*between, spnn.SubMConv3d(6, 5, 3)):
        model.add(module)
    return model


def test_a_convolution_does_not_keep_what_a_norm_can_make_again(monkeypatch) -> None:
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    x, lean, plain = scene(), _pair(nn.ReLU()), _pair(nn.ReLU())
    plain[2].register_forward_hook(lambda *args: None)  # keeps norm and ReLU apart
    seen: list[weakref.ref[torch.Tensor]] = []
    lean[3].register_forward_pre_hook(
        lambda layer, given: seen.append(weakref.ref(given[0].features)) and None
    )
    for got, wanted in zip(_trained(lean, lean, x), _trained(plain, plain, x), strict=True):
        assert torch.equal(got, wanted)
    lean.zero_grad()
    out = lean(x)
    assert seen[-1]() is None
    out.features.sum().backward(retain_graph=True)
    first = lean[3].weight.grad.clone()
    out.features.sum().backward()
    torch.testing.assert_close(lean[3].weight.grad, 2 * first)


class _Changed(nn.Module):
    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.change(value)


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        (lambda v: v.mul_(3), lambda v: v * 3),
        (lambda v: v[:, :6], lambda v: v),
        (lambda v: v.flip(0), lambda v: v.flip(0)),
    ],
)
def test_what_was_changed_since_is_kept(monkeypatch, change, alike) -> None:
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    x = scene()
    lean, plain = (_pair(nn.ReLU(), (_Changed(how),)) for how in (change, alike))
    plain[2].register_forward_hook(lambda *args: None)
    for got, wanted in zip(_trained(lean, lean, x), _trained(plain, plain, x), strict=True):
        assert torch.equal(got, wanted)


def test_a_norm_changed_before_backward_is_an_error_as_for_torch(monkeypatch) -> None:
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    model = _pair(nn.ReLU())
    out = model(scene()).features.sum()
    with torch.no_grad():
        model[1].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, model[3].weight)


def test_second_derivatives_of_what_is_made_again(monkeypatch) -> None:
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    x = scene().double()
    x = spnn.SparseConvTensor(x.features[:7], x.indices[:7], x.spatial_shape, x.batch_size)
    model = _pair(nn.ReLU()).double()

    def run(features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional_call(model, {"3.weight": weight}, (x.replace_feature(features),)).features

    weight = model[3].weight.detach().clone().requires_grad_()
    features = x.features.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(run, (features, weight))
    assert torch.autograd.gradgradcheck(run, (features, weight))


def test_what_a_norm_can_make_again_in_inference_mode(monkeypatch) -> None:
    """Its tensors have no edit counter, and nobody differentiates them."""
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    x, model = scene(), _pair(nn.ReLU()).train()
    head = spnn.SparseSequential(*list(model)[:3])
    kept = head(x)
    assert _again.sources(kept.features) is not None
    twin = copy.deepcopy(model)
    with torch.inference_mode():
        out = model(x).features
        again = model[3](kept).features
        rows = x.features.clone().requires_grad_()
        other = model(x.replace_feature(rows)).features
        assert _again.sources(head(x).features) is None
    assert out.is_inference()
    expected = twin(x).features
    for got in (out, again, other):
        torch.testing.assert_close(got, expected)
    expected.sum().backward()
    model[3](kept).features.sum().backward()
    torch.testing.assert_close(model[3].weight.grad, twin[3].weight.grad)


# ------------------------------------------------------------------------------------ printing


def test_layers_print_what_they_are_made_of() -> None:
    cases = {
        spnn.SparseConv3d(4, 8, 3, 2, 1, groups=2, bias=False, indice_key="down"): (
            "4, 8, kernel_size=[3, 3, 3], stride=[2, 2, 2], padding=[1, 1, 1], "
            "dilation=[1, 1, 1], groups=2, bias=False, indice_key='down'"
        ),
        spnn.SubMConv2d(4, 4, 5, dilation=2): (
            "4, 4, kernel_size=[5, 5], dilation=[2, 2], bias=True"
        ),
        spnn.SparseInverseConv1d(8, 4, 3, indice_key="down"): (
            "8, 4, kernel_size=[3], dilation=[1], bias=True, indice_key='down'"
        ),
    }
    for layer, words in cases.items():
        assert repr(layer) == f"{type(layer).__name__}({words})"
        assert repr(nn.Sequential(layer)).count(words) == 1
    assert repr(spnn.SparseMaxPool2d(3, 2, indice_key="p")) == (
        "SparseMaxPool2d(kernel_size=[3, 3], stride=[2, 2], padding=[0, 0], dilation=[1, 1], "
        "indice_key='p')"
    )


def test_only_a_layer_that_moves_sites_and_has_a_key_can_be_inverted() -> None:
    down = spnn.SparseConv3d(4, 8, 3, 2, indice_key="down")
    assert down.is_inverseable()
    assert not spnn.SparseConv3d(4, 8, 3, 2).is_inverseable()
    assert not spnn.SubMConv3d(4, 8, 3, indice_key="same").is_inverseable()
