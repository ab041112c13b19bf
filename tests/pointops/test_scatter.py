from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sparse3d.pointops import scatter_max, scatter_mean, scatter_min, scatter_mul, scatter_sum

LAYOUTS = [((40,), (40,), 0), ((40, 3), (40,), 0), ((4, 40), (40,), 1), ((4, 40), (4, 40), -1)]
LAYOUTS += [((2, 40, 3), (2, 40), 1), ((40, 3), (40, 3), 0), ((2, 40, 3), (40,), 1)]


def _segments(
    src: torch.Tensor, index: torch.Tensor, dim: int, size: int
) -> list[tuple[tuple[int, ...], int, list[tuple[int, float]]]]:
    """For each output place: its entries as (position along dim, value)."""
    dim %= src.ndim
    if index.ndim == 1:
        index = index.view([-1 if axis == dim else 1 for axis in range(src.ndim)])
    else:
        index = index.reshape(*index.shape, *[1] * (src.ndim - index.ndim))
    index = index.expand_as(src)
    places = {}
    for at in np.ndindex(*src.shape):
        out = (*at[:dim], int(index[at]), *at[dim + 1 :])
        places.setdefault(out, []).append((at[dim], float(src[at])))
    shape = [size if axis == dim else n for axis, n in enumerate(src.shape)]
    return [(out, dim, places.get(out, [])) for out in np.ndindex(*shape)]


@pytest.mark.parametrize(("shape", "index_shape", "dim"), LAYOUTS)
def test_values(
    backend: str, shape: tuple[int, ...], index_shape: tuple[int, ...], dim: int
) -> None:
    src = torch.randint(-3, 4, shape).float()
    index = torch.randint(0, 6, index_shape)
    index[index == 4] = 0  # one empty segment
    total, mean = scatter_sum(src, index, dim, 7), scatter_mean(src, index, dim, 7)
    (high, at_high), (low, at_low) = (
        scatter_max(src, index, dim, 7),
        scatter_min(src, index, dim, 7),
    )
    for out, _, entries in _segments(src, index, dim, 7):
        values = [value for _, value in entries]
        assert float(total[out]) == sum(values)
        assert float(mean[out]) == pytest.approx(sum(values) / max(len(values), 1), rel=1e-6)
        for got, arg, best in ((high, at_high, max), (low, at_low, min)):
            if not values:
                assert float(got[out]) == 0
                assert int(arg[out]) == -1
            else:
                assert float(got[out]) == best(values)
                first = next(place for place, value in entries if value == best(values))
                assert int(arg[out]) == first


def test_sums_are_made_in_order(backend: str) -> None:
    """1e8 + 1 - 1e8 in float32 depends on the order: ascending gives 0, any other 1."""
    src = torch.tensor([1e8, 1.0, -1e8])
    assert float(scatter_sum(src, torch.zeros(3, dtype=torch.int64))) == 0.0


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_gradients(reduce: str) -> None:
    function = {"sum": scatter_sum, "mean": scatter_mean, "max": scatter_max, "min": scatter_min}
    src = torch.randn(3, 12, dtype=torch.float64, requires_grad=True)
    for index in (torch.randint(0, 5, (12,)), torch.randint(0, 5, (3, 12))):

        def run(value: torch.Tensor, index: torch.Tensor = index) -> torch.Tensor:
            out = function[reduce](value, index, 1, 6)
            return out[0] if isinstance(out, tuple) else out

        assert torch.autograd.gradcheck(run, (src,))
        assert torch.autograd.gradgradcheck(run, (src,))


def test_empty_and_integers(backend: str) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    assert scatter_sum(torch.zeros(0, 2), nothing, 0, 3).tolist() == [[0.0] * 2] * 3
    assert scatter_max(torch.zeros(0, 2), nothing, 0, 3)[1].tolist() == [[-1] * 2] * 3
    assert scatter_sum(torch.zeros(0, 2), nothing, 0).shape == (0, 2)
    src, index = torch.tensor([7, -2, 4]), torch.tensor([1, 1, 0])
    assert scatter_sum(src, index).tolist() == [4, 5]
    assert scatter_mean(src, index).tolist() == [4, 2]
    assert scatter_min(src, index)[0].tolist() == [4, -2]


@pytest.mark.parametrize(("shape", "index_shape", "dim"), LAYOUTS)
def test_products(
    backend: str, shape: tuple[int, ...], index_shape: tuple[int, ...], dim: int
) -> None:
    src = torch.randint(1, 3, shape).double() * 0.5
    index = torch.randint(0, 6, index_shape)
    index[index == 4] = 0  # one empty segment
    product = scatter_mul(src, index, dim, 7)
    for out, _, entries in _segments(src, index, dim, 7):
        assert float(product[out]) == math.prod(value for _, value in entries)
    start = torch.full_like(product, 3.0)
    assert torch.equal(scatter_mul(src, index, dim, initial=start), 3 * product)


def test_products_of_whole_numbers_and_of_nothing(backend: str) -> None:
    src, index = torch.tensor([3, -2, 0, 7, 5]), torch.tensor([1, 1, 0, 3, 1])
    assert scatter_mul(src, index).tolist() == [0, -30, 1, 7]
    assert scatter_mul(src[:0], index[:0], dim_size=2).tolist() == [1, 1]


def test_gradient_of_a_product_with_zeros() -> None:
    src = torch.tensor([2.0, 0.0, 3.0, 0.0, 0.0, 5.0], dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 0, 0, 1, 1, 2])
    scatter_mul(src, index).sum().backward()
    assert src.grad.tolist() == [0.0, 6.0, 0.0, 0.0, 0.0, 1.0]
    rows = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 1, 0, 3, 1, 1, 0, 3, 1])
    start = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda a, b: scatter_mul(a, index, 0, initial=b), (rows, start))


def test_reductions_start_from_initial_values(backend: str) -> None:
    src, index = torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([0, 0, 2])
    start = torch.tensor([[3.0, 5.0, 2.0]])
    assert scatter_sum(src, index, initial=start).tolist() == [[8.0, 5.0, 4.0]]
    assert scatter_mean(src, index, initial=start).tolist() == [[4.0, 5.0, 4.0]]
    out, arg = scatter_max(src, index, initial=start)
    assert (out.tolist(), arg.tolist()) == ([[4.0, 5.0, 2.0]], [[1, -1, -1]])  # a tie keeps it
    out, arg = scatter_min(src, index, initial=start)
    assert (out.tolist(), arg.tolist()) == ([[1.0, 5.0, 2.0]], [[0, -1, -1]])
    assert start.tolist() == [[3.0, 5.0, 2.0]]
    whole, by = torch.tensor([-4, 1, 3]), torch.tensor([0, 0, 1])
    assert scatter_mean(whole, by, rounding="trunc").tolist() == [-1, 3]
    begun = torch.tensor([-2, 0])
    assert scatter_mean(whole, by, initial=begun).tolist() == [-3, 3]
    assert scatter_mean(whole, by, rounding="trunc", initial=begun).tolist() == [-2, 3]


def test_gradients_reach_initial_values() -> None:
    src = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    start = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 1, 0, 3, 1, 1, 0, 3, 1])
    for run in (scatter_sum, scatter_mean):
        assert torch.autograd.gradcheck(
            lambda a, b, run=run: run(a, index, 0, initial=b), (src, start)
        )
    for run in (scatter_max, scatter_min):
        assert torch.autograd.gradcheck(
            lambda a, b, run=run: run(a, index, 0, initial=b)[0], (src, start)
        )


def test_bad_initial_values(backend: str) -> None:
    src, index = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match=r"initial must be of shape \[2, 2\], got \[2, 1\]"):
        scatter_sum(src, index, 0, initial=torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"initial must be of shape \[4, 2\], got \[2, 2\]"):
        scatter_max(src, index, 0, 4, initial=torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"initial must be torch\.float32 as src is"):
        scatter_mul(src, index, 0, initial=torch.zeros(2, 2).double())
    with pytest.raises(ValueError, match=r"index must be in \[0, 1\), dim_size, got 1"):
        scatter_min(src, index, 0, initial=torch.zeros(1, 2))
    with pytest.raises(ValueError, match="rounding must be one of"):
        scatter_mean(src, index, 0, rounding="up")


def test_bad_input(backend: str) -> None:
    src = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="index must be >= 0, got -1"):
        scatter_sum(src, torch.tensor([0, -1, 0]), 0)
    with pytest.raises(ValueError, match=r"index must be in \[0, 2\), dim_size, got 2"):
        scatter_sum(src, torch.tensor([0, 2, 0]), 0, 2)
    with pytest.raises(ValueError, match="index must be of 3 entries"):
        scatter_sum(src, torch.tensor([0, 1]), 0)
    with pytest.raises(ValueError, match="index must be broadcastable"):
        scatter_sum(src, torch.zeros(2, 2).long(), 0)
    with pytest.raises(TypeError, match="index must be int64 or int32"):
        scatter_sum(src, torch.zeros(3), 0)
    with pytest.raises(ValueError, match=r"dim must be in \[-2, 2\), got 2"):
        scatter_sum(src, torch.zeros(3).long(), 2)


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(3000,), (3000, 2)])
def test_half_means_are_rounded_once(
    backend: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    src = (torch.rand(shape) + 29.5).to(dtype).requires_grad_()
    index = torch.arange(3000) % 2
    mean = scatter_mean(src, index, 0)
    wide = src.detach().float().requires_grad_()
    wanted = scatter_mean(wide, index, 0)
    assert torch.equal(mean, wanted.to(dtype))
    mean.sum().backward()
    wanted.sum().backward()
    assert torch.equal(src.grad, wide.grad.to(dtype))
    offset = torch.full((2, *shape[1:]), 0.3, dtype=dtype)
    started = scatter_mean(src.detach(), index, 0, initial=offset)
    assert torch.equal(
        started, scatter_mean(wide.detach(), index, 0, initial=offset.float()).to(dtype)
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_half_means_of_more_entries_than_half_counts(backend: str, dtype: torch.dtype) -> None:
    src = torch.ones(100_000, dtype=dtype, requires_grad=True)
    mean = scatter_mean(src, torch.zeros(100_000, dtype=torch.int64))
    assert mean.tolist() == [1.0]
    mean.sum().backward()
    assert torch.equal(src.grad, torch.full_like(src, 1e-5))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("run", [scatter_sum, scatter_mul])
def test_half_sums_and_products_are_rounded_once(backend: str, dtype: torch.dtype, run) -> None:
    index = torch.arange(30) % 3
    src = (torch.rand(30, 2) + 0.5).to(dtype).requires_grad_()
    start = (torch.rand(3, 2) + 0.5).to(dtype)
    wide = src.detach().float().requires_grad_()
    out, wanted = run(src, index, 0, initial=start), run(wide, index, 0, initial=start.float())
    assert torch.equal(out, wanted.to(dtype))
    out.sum().backward()
    wanted.sum().backward()
    assert torch.equal(src.grad, wide.grad.to(dtype))
