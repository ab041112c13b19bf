"""Batch normalisation of rows, judged by torch's dense batch norm in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_close

from sparse3d import _registry
from sparse3d.ops.norm import (
    batch_norm,
    batch_norm_grad,
    batch_norm_relu,
    batch_norm_relu_grad,
    batch_norm_relu_train,
    batch_norm_train,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def case(rows: int = 1300, channels: int = 5, dtype: torch.dtype = torch.float64):
    features = (torch.randn(rows, channels, dtype=torch.float64) * 3 + 7).to(dtype)
    return features, torch.rand(channels, dtype=dtype) + 0.5, torch.randn(channels, dtype=dtype)


def statistics(channels: int, dtype: torch.dtype = torch.float64):
    return torch.full((channels,), 0.25, dtype=dtype), torch.full((channels,), 2.0, dtype=dtype)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rows", [2, 511, 512, 513, 1300])
def test_agrees_with_dense_batch_norm(backend: str, rows: int, training: bool, affine: bool):
    features, weight, bias = case(rows)
    pair = (weight, bias) if affine else (None, None)
    mine, theirs = statistics(5), statistics(5)
    with _registry.force(backend):
        out = batch_norm(features, *mine, *pair, training, 0.3, 1e-3)
    wanted = F.batch_norm(features, *theirs, *pair, training, 0.3, 1e-3)
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)
    for got, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_sums_wide(dtype: torch.dtype):
    features, weight, bias = case(dtype=dtype)
    out = batch_norm(features, None, None, weight, bias, training=True)
    wanted = F.batch_norm(
        features.double(), None, None, weight.double(), bias.double(), training=True
    )
    assert out.dtype == dtype
    assert_close(out, wanted, dtype)


def test_gradients_and_second_derivatives():
    features, weight, bias = (value.requires_grad_() for value in case(6, 3))
    call = lambda *args: batch_norm(args[0], None, None, args[1], args[2], training=True)  # noqa: E731
    assert torch.autograd.gradcheck(call, (features, weight, bias))
    assert torch.autograd.gradgradcheck(call, (features, weight, bias))


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_agree_with_dense_batch_norm(affine: bool):
    def gradients(norm: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        leaves = [value.requires_grad_() for value in (case() if affine else case()[:1])]
        out = norm(leaves[0], None, None, *leaves[1:], training=True)
        (out * torch.randn_like(out)).sum().backward()
        return [leaf.grad for leaf in leaves]

    for got, wanted in zip(gradients(batch_norm), gradients(F.batch_norm), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_bytes_do_not_depend_on_threads(threads: Callable[[int], None]):
    features, weight, bias = case(20_000, 24, torch.float32)
    upstream = torch.randn_like(features)

    def run(count: int) -> list[torch.Tensor]:
        threads(count)
        leaves = [value.clone().requires_grad_() for value in (features, weight, bias)]
        out = batch_norm(leaves[0], None, None, *leaves[1:], training=True)
        out = batch_norm_relu(out, None, None, *leaves[1:], residual=leaves[0])
        out.backward(upstream)
        return [out.detach(), *(leaf.grad for leaf in leaves)]

    first = run(1)
    for count in (2, 3, 8):
        for got, wanted in zip(run(count), first, strict=True):
            assert torch.equal(got, wanted)


def test_one_row_gives_the_bias_and_none_leaves_statistics_alone():
    features, weight, bias = case(1)
    out = batch_norm(features, *statistics(5), weight, bias, training=True)
    torch.testing.assert_close(out[0], bias)
    mean, var = statistics(5)
    empty = features[:0].requires_grad_()
    out = batch_norm(empty, mean, var, weight, bias, training=True)
    out.sum().backward()
    assert out.shape == empty.grad.shape == (0, 5)
    assert torch.equal(mean, statistics(5)[0])
    assert torch.equal(var, statistics(5)[1])


def test_opcheck():
    features, weight, bias = case(40)
    mean, var = features.mean(0), features.var(0, unbiased=False)
    torch.library.opcheck(
        batch_norm_train.overload, (features.requires_grad_(), weight, bias, 1e-5)
    )
    torch.library.opcheck(
        batch_norm_grad.overload, (torch.randn(40, 5).double(), features, weight, mean, var, 1e-5)
    )
    side = torch.randn(40, 5).double()
    for added in (side.requires_grad_(), None):
        args = (features, weight, bias, added, 1e-5)
        torch.library.opcheck(batch_norm_relu_train.overload, args)
        grad_args = (side.detach(), features, weight, bias, added, mean, var, 1e-5)
        torch.library.opcheck(batch_norm_relu_grad.overload, grad_args)


@pytest.mark.usefixtures("cpu_library")
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (513, 17), (1300, 96)])
def test_relu_in_one_pass_gives_the_bytes_of_its_steps(shape, dtype, affine, added):
    def results(join: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(5)
        features, weight, bias = case(*shape, dtype)
        bias -= 0.5
        features[:, 1] = 3.0  # a constant column lies on the kink where the bias is 0
        bias[1] = 0.0
        leaves = [v.requires_grad_() for v in (features, *((weight, bias) * affine))]
        side = torch.randn(shape).to(dtype).requires_grad_() if added else None
        running = statistics(shape[1], dtype)
        out = join(leaves[0], *running, *(leaves[1:] or (None, None)), side)
        out.backward(torch.randn(shape).to(dtype))
        grads = [leaf.grad for leaf in (*leaves, *([side] if added else []))]
        return [out.detach(), *running, *grads]

    def steps(x, mean, var, weight, bias, side):
        out = batch_norm(x, mean, var, weight, bias, training=True)
        return torch.relu(out if side is None else out + side)

    with _registry.force("cpu"):
        fused = results(lambda *a: batch_norm_relu(*a[:5], residual=a[5]))
        for got, wanted in zip(fused, results(steps), strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_second_derivatives_through_relu(affine: bool, added: bool):
    torch.manual_seed(9)
    leaves = [value.requires_grad_() for value in case(6, 3)][: 3 if affine else 1]
    side = [torch.randn(6, 3, dtype=torch.float64).requires_grad_()] if added else []

    def call(x, *rest):
        pair = rest[:2] if affine else (None, None)
        return batch_norm_relu(x, None, None, *pair, residual=rest[-1] if added else None)

    assert torch.autograd.gradcheck(call, (*leaves, *side))
    assert torch.autograd.gradgradcheck(call, (*leaves, *side))


def test_nan_passes_relu_and_its_gradient_as_torch_lets_it():
    features, _, _ = case(20, 3, torch.float32)
    features[3, 1] = float("nan")
    x = features.requires_grad_()
    out = batch_norm_relu(x, None, None)
    wanted = torch.relu(batch_norm(x, None, None, training=True))
    torch.testing.assert_close(out, wanted, rtol=0, atol=0, equal_nan=True)
    up = torch.randn(20, 3)
    (got,), (expected,) = (torch.autograd.grad(v, x, up) for v in (out, wanted))
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("cpu_library")
def test_variance_is_exact_where_the_mean_is_large():
    torch.manual_seed(2)
    features = (torch.randn(5000, 3) + torch.tensor([0.0, 1e4, -3e5])).float()
    with _registry.force("cpu"):
        _, mean, var = batch_norm_train(features, None, None, 1e-5)
    wide = features.double()
    torch.testing.assert_close(var.double(), wide.var(0, unbiased=False), rtol=2e-6, atol=0)
    torch.testing.assert_close(mean.double(), wide.mean(0), rtol=2e-7, atol=1e-7)


def test_bad_residual():
    features, weight, bias = case(4)
    with pytest.raises(ValueError, match="residual must be of shape"):
        batch_norm_relu(features, None, None, residual=features[:3])
    with pytest.raises(TypeError, match="residual must be of dtype"):
        batch_norm_relu(features, None, None, weight, bias, residual=features.float())


def test_bad_input():
    with pytest.raises(ValueError, match="features must be"):
        batch_norm(torch.randn(3), None, None, training=True)
    with pytest.raises(TypeError, match="features must be"):
        batch_norm(torch.ones(3, 2, dtype=torch.int64), None, None, training=True)
