from __future__ import annotations

import math

import pytest
import torch

from sparse3d.pointops import (
    scatter_log_softmax,
    scatter_logsumexp,
    scatter_softmax,
    scatter_squares,
    scatter_std,
)

INDEX = torch.tensor([0, 1, 0, 3, 1, 1, 0, 3, 1])
SEGMENTS = (0, 1, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_those_of_torch_along_each_segment(backend: str, dtype: torch.dtype) -> None:
    src = torch.randn(2, 9, 3, dtype=dtype) * 4
    soft, logged = scatter_softmax(src, INDEX, 1), scatter_log_softmax(src, INDEX, 1)
    summed = scatter_logsumexp(src, INDEX, 1, 5)
    spread, biased = scatter_std(src, INDEX, 1, 5), scatter_std(src, INDEX, 1, 5, unbiased=False)
    for segment in SEGMENTS:
        mine = src[:, segment == INDEX]
        assert torch.allclose(soft[:, segment == INDEX], mine.softmax(1))
        assert torch.allclose(logged[:, segment == INDEX], mine.log_softmax(1), atol=1e-6)
        assert torch.allclose(summed[:, segment], mine.logsumexp(1), atol=1e-6)
        assert torch.allclose(spread[:, segment], mine.std(1), rtol=1e-5)
        assert torch.allclose(biased[:, segment], mine.std(1, unbiased=False), rtol=1e-5)
    for empty in (2, 4):
        assert not summed[:, empty].any()
        assert not spread[:, empty].any()


def test_an_index_of_the_shape_of_src_and_a_negative_axis() -> None:
    src = torch.randn(3, 9)
    index = torch.stack([INDEX, INDEX.flip(0), INDEX])
    soft = scatter_softmax(src, index, -1)
    assert torch.equal(soft[0], scatter_softmax(src[0], INDEX))
    assert torch.equal(soft[1], scatter_softmax(src[1], INDEX.flip(0)))
    assert torch.equal(scatter_logsumexp(src, index)[1], scatter_logsumexp(src[1], INDEX.flip(0)))


def test_logsumexp_of_infinities_and_not_numbers() -> None:
    inf = math.inf
    cases = [[inf, 1.0], [-inf, 1.0], [1e33, -1e33], [math.nan, 1.0], [inf, inf], [0.0, 1.0]]
    src = torch.tensor(cases).reshape(-1)
    index = torch.arange(len(cases)).repeat_interleave(2)
    wanted = torch.tensor(cases).logsumexp(1)
    assert torch.allclose(scatter_logsumexp(src, index), wanted, equal_nan=True)
    nothing = torch.tensor([-inf, -inf])
    assert scatter_logsumexp(nothing, torch.tensor([0, 0]), dim_size=2).tolist() == [0.0, 0.0]


def test_logsumexp_takes_initial_as_one_more_entry() -> None:
    src, index = torch.tensor([1.0, 2.0, -math.inf, 4.0]), torch.tensor([0, 0, 2, 3])
    start = torch.tensor([0.5, 7.0, 3.0, 1000.0])
    found = scatter_logsumexp(src, index, initial=start)
    first = torch.tensor([0.5, 1.0, 2.0]).logsumexp(0)
    # Segments without an entry above -inf keep what they had; a large start does not overflow.
    assert torch.allclose(found, torch.tensor([first, 7.0, 3.0, 1000.0]))


def test_shapes_of_nothing() -> None:
    wide, none = torch.rand(5, 0), torch.zeros(5, 0, dtype=torch.int64)
    assert scatter_softmax(wide, none, 0, 3).shape == (5, 0)
    assert scatter_log_softmax(wide, torch.zeros(5, dtype=torch.int64), 0).shape == (5, 0)
    assert scatter_std(wide, none, 0, 3).shape == (3, 0)
    assert scatter_logsumexp(torch.rand(0, 4), torch.arange(0), 0, 3).tolist() == [[0.0] * 4] * 3


def test_squares_and_deviations_with_initial() -> None:
    src, index = torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1])
    start = torch.full((3,), 2.0)
    assert scatter_squares(src, index, initial=start).tolist() == [4.0, 2.0, 2.0]
    found = scatter_std(src, index, initial=start)
    assert torch.allclose(found, torch.tensor([2.0, 2**0.5, 2**0.5]))


@pytest.mark.parametrize(
    "run", [scatter_softmax, scatter_log_softmax, scatter_logsumexp, scatter_std]
)
def test_gradients(run) -> None:
    src = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: run(value, INDEX, 1), (src,))


def test_bad_input(backend: str) -> None:
    with pytest.raises(ValueError, match=r"src must be floating, got torch\.int64"):
        scatter_softmax(torch.tensor([1, 2]), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="index must be int64 or int32"):
        scatter_std(torch.rand(2), torch.rand(2))
    with pytest.raises(ValueError, match="index must be >= 0, got -1"):
        scatter_logsumexp(torch.rand(2), torch.tensor([0, -1]))
    with pytest.raises(ValueError, match="index must be of 3 entries"):
        scatter_softmax(torch.rand(3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="index must be broadcastable"):
        scatter_softmax(torch.rand(3, 2), torch.zeros(2, 2, dtype=torch.int64), 0)
    with pytest.raises(ValueError, match=r"initial must be of shape \[2\]"):
        scatter_std(torch.rand(2), torch.tensor([0, 1]), dim_size=2, initial=torch.rand(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "run",
    [scatter_softmax, scatter_log_softmax, scatter_logsumexp, scatter_squares, scatter_std],
)
def test_half_results_and_gradients_are_rounded_once(backend: str, dtype: torch.dtype, run) -> None:
    src = (torch.randn(2, 900) * 4).to(dtype).requires_grad_()
    index = torch.arange(900) % 7
    wide = src.detach().float().requires_grad_()
    out, wanted = run(src, index, 1), run(wide, index, 1)
    assert out.dtype == dtype
    assert torch.equal(out, wanted.to(dtype))
    weight = torch.randn_like(wanted).to(dtype)
    (out * weight).sum().backward()
    (wanted * weight.float()).sum().backward()
    assert torch.equal(src.grad, wide.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_segments_of_more_entries_than_half_counts(backend: str, dtype: torch.dtype) -> None:
    src, index = torch.ones(70_000, dtype=dtype), torch.zeros(70_000, dtype=torch.int64)
    soft = scatter_softmax(src, index)
    assert torch.equal(soft, torch.full_like(src, 1 / 70_000))
    assert torch.equal(scatter_logsumexp(src, index), src.float().logsumexp(0)[None].to(dtype))
    assert scatter_std(src, index).tolist() == [0.0]
