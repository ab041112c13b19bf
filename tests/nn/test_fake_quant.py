"""Layers that round their kernels against arithmetic with plain tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nn.scenes import scene
from torch import nn
from torch.ao.quantization import QConfig
from torch.ao.quantization.fake_quantize import default_fused_per_channel_wt_fake_quant

import sparse3d.nn as spnn
from sparse3d.nn import fake_quant, fused

ROUNDING: Any = QConfig(activation=None, weight=default_fused_per_channel_wt_fake_quant)


def rounded(weight: torch.Tensor, quantiser: Any) -> torch.Tensor:
    """To int8 and back by the quantiser's scales, one a row of the stored weight."""
    shape = (-1, *[1] * (weight.ndim - 1))
    scale, zero = quantiser.scale.reshape(shape), quantiser.zero_point.reshape(shape)
    assert len(scale) == len(weight)
    spread = weight.detach().reshape(len(weight), -1)
    assert float((spread.abs().amax(1) / quantiser.scale).max()) < 256
    return ((weight.detach() / scale).round() + zero).clamp(-128, 127).sub(zero) * scale


def norm(width: int) -> nn.BatchNorm1d:
    made = nn.BatchNorm1d(width)
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias)
    nn.init.normal_(made.running_mean)  # type: ignore[arg-type]
    nn.init.uniform_(made.running_var, 0.5, 2)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["", "ReLU", "AddReLU"])
def test_kernels_are_rounded(size: int, bias: bool, kind: str) -> None:
    layer = spnn.SubMConv3d(4, 6, size, bias=bias)
    if kind:
        source: Any = getattr(fused, f"Spconv{kind}Nd")(layer, nn.ReLU())
    else:
        source = layer
    source.qconfig = ROUNDING
    made = getattr(fake_quant, f"SparseConv{kind}").from_float(source)
    assert made.weight is layer.weight
    x = scene()
    side = [x.replace_feature(torch.randn(len(x.features), 6))] if "Add" in kind else []
    got = made(x, *side).features
    twin = spnn.SubMConv3d(4, 6, size, bias=bias)
    twin.load_state_dict(
        {**layer.state_dict(), "weight": rounded(layer.weight, made.weight_fake_quant)}
    )
    wanted = twin(x).features + (side[0].features if side else 0)
    wanted = wanted.relu() if "ReLU" in kind else wanted
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    got.square().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0
    back = made.to_float()
    assert type(back) is (type(source) if kind else spnn.SparseConvolution)
    torch.testing.assert_close(back(x, *side).features, source(x, *side).features)
    with torch.no_grad():
        torch.testing.assert_close(made(x, *side).features, got, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["Bn", "BnReLU", "BnAddReLU"])
def test_kernels_are_rounded_with_their_norm(
    size: int, bias: bool, training: bool, kind: str
) -> None:
    layer, after = spnn.SubMConv3d(4, 6, size, bias=bias), norm(6)
    parts = [layer, after, *([nn.ReLU()] if "ReLU" in kind else [])]
    source: Any = getattr(fused, f"Spconv{kind}Nd")(*parts).train(training)
    source.qconfig = ROUNDING
    made = getattr(fake_quant, f"SparseConv{kind}").from_float(source)
    scale = (after.weight / (after.running_var + after.eps).sqrt()).detach()  # type: ignore[operator]
    x = scene()
    side = [x.replace_feature(torch.randn(len(x.features), 6))] if "Add" in kind else []
    twin = spnn.SubMConv3d(4, 6, size, bias=False)
    factors = scale.reshape(-1, 1, 1, 1, 1)
    twin.set_kernel(layer.kernel().detach() * factors)
    expected_norm = norm(6).train(training)
    expected_norm.load_state_dict(after.state_dict())
    got = made(x, *side)
    twin.weight.data = rounded(twin.weight, made.weight_fake_quant)
    sums = twin(x).features / scale + (layer.bias if bias else 0)
    wanted = expected_norm(sums) + (side[0].features if side else 0)
    wanted = wanted.relu() if "ReLU" in kind else wanted
    torch.testing.assert_close(got.features, wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(made.bn.running_mean, expected_norm.running_mean)
    got.features.square().sum().backward()
    for parameter in (layer.weight, after.weight, after.bias):
        assert parameter.grad is not None
    made.eval(), source.eval()
    close = torch.testing.assert_close
    close(made.to_float()(x, *side).features, source(x, *side).features, rtol=1e-4, atol=1e-4)


def test_a_frozen_norm_stays_as_it_is() -> None:
    source: Any = fused.SpconvBnNd(spnn.SubMConv3d(4, 6, 3), norm(6))
    source.qconfig = ROUNDING
    made = fake_quant.SparseConvBn.from_float(source).freeze_bn_stats().train()
    before = made.bn.running_mean.clone()
    made(scene())
    assert torch.equal(made.bn.running_mean, before)
    made.update_bn_stats()(scene())
    assert not torch.equal(made.bn.running_mean, before)
    made.reset_running_stats()
    assert not made.bn.running_mean.any()


def test_in_a_container_nothing_is_folded_past_the_rounding() -> None:
    source: Any = fused.SpconvBnNd(spnn.SubMConv3d(4, 6, 3), norm(6)).eval()
    source.qconfig = ROUNDING
    made = fake_quant.SparseConvBn.from_float(source)
    net, x = spnn.SparseSequential(made, nn.ReLU()).eval(), scene()
    wanted = made(x).features.relu().detach()
    with torch.no_grad():
        torch.testing.assert_close(net(x).features, wanted)


def test_what_is_refused() -> None:
    layer = spnn.SubMConv3d(4, 6, 3)
    with pytest.raises(ValueError, match="qconfig must be given for a layer that rounds"):
        fake_quant.SparseConv.from_float(layer)
    with pytest.raises(TypeError, match="mod must be SpconvBnNd for SparseConvBn, got SubMConv3d"):
        fake_quant.SparseConvBn.from_float(layer)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_kernels_of_fixed_scales(per_channel: bool, size: int) -> None:
    layer, x = spnn.SubMConv3d(4, 6, size), scene()
    scale = torch.linspace(0.01, 0.02, 6) if per_channel else torch.tensor(0.015)
    scheme = torch.per_channel_affine if per_channel else torch.per_tensor_affine
    zero = torch.zeros(6, dtype=torch.int64) if per_channel else 0
    given = {"qscheme": scheme, "dtype": torch.qint8, "scale": scale, "zero_point": zero, "axis": 0}
    made = fake_quant.SpConv.from_float(layer, given)
    steps = scale.reshape(-1, 1, 1, 1, 1) if per_channel else scale
    twin = spnn.SubMConv3d(4, 6, size)
    values = (layer.weight.detach() / steps).round().clamp(-128, 127) * steps
    twin.load_state_dict({**layer.state_dict(), "weight": values})
    torch.testing.assert_close(made(x).features, twin(x).features)
    assert torch.equal(made.canonical_kernel(), layer.kernel())
    assert made.weight_scale.equal(scale)
