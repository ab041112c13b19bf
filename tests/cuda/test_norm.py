"""Batch norm in training on NVIDIA, judged by the float64 reference on the CPU."""

from __future__ import annotations

import pytest
import torch
from tolerance import GRADIENT, assert_close

from sparse3d.ops.norm import batch_norm_grad, batch_norm_train

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("gpu")]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EPS = 1e-5


def rows_of(rows: int, channels: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows + channels)
    return (3 * torch.randn(rows, channels, generator=draw) - 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 4, 31, 513, 70_000])
@pytest.mark.parametrize("channels", [1, 3, 19, 96, 256])
@pytest.mark.parametrize("affine", ["none", "float", "own"])
def test_agrees_with_float64(rows: int, channels: int, dtype: torch.dtype, affine: str) -> None:
    x, up = rows_of(rows, channels, dtype), rows_of(rows, channels, dtype).flip(1)
    pair: list[torch.Tensor | None] = [None, None]
    if affine != "none":
        kind = torch.float32 if affine == "float" else dtype
        pair = [torch.linspace(0.5, 2, channels).to(kind), torch.linspace(-1, 1, channels).to(kind)]
    there = [None if value is None else value.cuda() for value in pair]
    exact = [None if value is None else value.double() for value in pair]
    out, mean, var = batch_norm_train(x.cuda(), *there, EPS)
    wanted = batch_norm_train(x.double(), *exact, EPS)
    assert (out.dtype, mean.dtype, var.dtype) == (dtype, torch.float32, torch.float32)
    assert_close(out.cpu(), wanted[0], dtype)
    assert_close(mean.cpu(), wanted[1], torch.float32)
    assert_close(var.cpu(), wanted[2], torch.float32)
    grads = batch_norm_grad(up.cuda(), x.cuda(), there[0], mean, var, EPS)
    expected = batch_norm_grad(up.double(), x.double(), exact[0], *wanted[1:], EPS)
    for found, value in zip(grads, expected, strict=True):
        assert_close(found.cpu(), value, dtype, GRADIENT)


def test_same_bytes_twice() -> None:
    x, up = rows_of(150_000, 96, torch.float16).cuda(), rows_of(150_000, 96, torch.float16).cuda()
    weight = torch.rand(96, device="cuda")
    first: list[torch.Tensor] = []
    for turn in range(5):
        made = batch_norm_train(x, weight, weight, EPS)
        found = [*made, *batch_norm_grad(up, x, weight, *made[1:], EPS)]
        first = first or found
        assert all(torch.equal(a, b) for a, b in zip(first, found, strict=True)), turn


def test_columns_far_from_zero() -> None:
    x = (torch.randn(40_000, 8, dtype=torch.float64) + 1000).float()
    out, mean, var = batch_norm_train(x.cuda(), None, None, EPS)
    wanted = batch_norm_train(x.double(), None, None, EPS)
    assert torch.allclose(mean.cpu().double(), wanted[1], rtol=1e-6)
    assert torch.allclose(var.cpu().double(), wanted[2], rtol=1e-4)
    assert torch.allclose(out.cpu().double(), wanted[0], atol=1e-3)


def test_gradients_of_other_layouts() -> None:
    x = rows_of(600, 32, torch.float32).cuda()
    _, mean, var = batch_norm_train(x, None, None, EPS)
    up = torch.randn(32, device="cuda").expand(600, 32)
    plain = batch_norm_grad(up.contiguous(), x, None, mean, var, EPS)
    for same in (
        batch_norm_grad(up, x, None, mean, var, EPS),
        batch_norm_grad(up, x.t().contiguous().t(), None, mean, var, EPS),
    ):
        assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))
