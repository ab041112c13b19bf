"""Rows times a matrix, on every backend: torch's own linear layer is the judge."""

from __future__ import annotations

import pytest
import torch
from tolerance import assert_close

import sparse3d.nn as spnn
from sparse3d import _registry
from sparse3d.ops.linear import linear, linear_rows, linear_weight_grad, sinusoidal


def _draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize("rows", [0, 1, 33, 65, 600])
@pytest.mark.parametrize(("cin", "cout"), [(1, 1), (3, 3), (5, 40), (64, 20), (17, 130)])
def test_values_and_gradients(backend: str, rows: int, cin: int, cout: int) -> None:
    x, weight, bias, up = _draw(rows, cin), _draw(cout, cin), _draw(cout), _draw(rows, cout)
    ours = [t.clone().requires_grad_() for t in (x, weight, bias)]
    theirs = [t.clone().requires_grad_() for t in (x, weight, bias)]
    with _registry.force(backend):
        out = linear(*ours)
        out.backward(up)
    expected = torch.nn.functional.linear(*theirs)
    expected.backward(up)
    assert_close(out, expected, torch.float32)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine.grad, wanted.grad, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(backend: str, dtype: torch.dtype) -> None:
    x, weight, up = (_draw(*shape, dtype=dtype) for shape in ((70, 24), (12, 24), (70, 12)))
    with _registry.force(backend):
        found = [linear_rows(x, weight, False), linear_rows(up, weight, True)]
        found.append(linear_weight_grad(x, up))
    wide, factor, grad = x.float(), weight.float(), up.float()
    for ours, expected in zip(
        found, (wide @ factor.t(), grad @ factor, grad.t() @ wide), strict=True
    ):
        assert ours.dtype == dtype
        assert_close(ours, expected.to(dtype), dtype)


def test_the_sum_over_many_rows_is_whole(backend: str) -> None:
    """More rows than the inner dimension at which PyTorch's product on Apple GPUs is wrong."""
    rows = 33_000
    x, up = torch.ones(rows, 1), torch.ones(rows, 1)
    with _registry.force(backend):
        assert linear_weight_grad(x, up).item() == rows


def test_second_derivatives() -> None:
    x, weight = _draw(6, 4).double().requires_grad_(), _draw(3, 4).double().requires_grad_()
    for transposed, rows in ((False, x), (True, _draw(6, 3).double().requires_grad_())):
        assert torch.autograd.gradgradcheck(
            lambda a, b, t=transposed: linear_rows(a, b, t), (rows, weight)
        )
    torch.library.opcheck(linear_rows.overload, (x.detach(), weight.detach(), False))
    torch.library.opcheck(linear_weight_grad.overload, (x.detach(), _draw(6, 3).double()))


def test_a_layer_is_torchs_layer(backend: str) -> None:
    """Same state and values, any leading axes, nothing to learn beside torch's."""
    layer, theirs = spnn.Linear(8, 5), torch.nn.Linear(8, 5)
    layer.load_state_dict(theirs.state_dict())
    assert isinstance(layer, torch.nn.Linear)
    for shape in ((7, 8), (2, 3, 8), (8,)):
        x = _draw(*shape)
        with _registry.force(backend):
            assert_close(layer(x), theirs(x), torch.float32)


@pytest.mark.parametrize("rows", [0, 1, 600])
def test_sinusoidal_rows(backend: str, rows: int) -> None:
    """Values and gradients of the formula in float64."""
    drawn = [_draw(rows, 5), _draw(5, 12), _draw(1, 12), _draw(1, 12)]
    ours = [t.clone().requires_grad_() for t in drawn]
    x, kernel, bias, coef = theirs = [t.double().requires_grad_() for t in drawn]
    up = _draw(rows, 12)
    with _registry.force(backend):
        out = sinusoidal(*ours)
        out.backward(up)
    expected = (x @ kernel + bias).sin() * coef
    expected.backward(up.double())
    assert_close(out, expected.float(), torch.float32)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine.grad, wanted.grad.float(), torch.float32)
