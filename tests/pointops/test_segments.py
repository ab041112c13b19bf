from __future__ import annotations

import numpy as np
import pytest
import torch

from sparse3d.pointops import segments

REDUCE = {"sum": sum, "mean": lambda values: sum(values) / len(values), "min": min, "max": max}
BOUNDS = torch.tensor([[0, 2, 5, 5, 6], [1, 1, 3, 4, 7]])


def _check(out, arg, src, bounds, reduce) -> None:
    """Each entry against its run, one at a time; src (rows, entries, channels)."""
    for row, segment, channel in np.ndindex(*out.shape):
        first, last = bounds[row, segment : segment + 2].tolist()
        run = src[row, first:last, channel].tolist()
        got = float(out[row, segment, channel])
        if not run:
            assert got == 0
            assert arg is None or int(arg[row, segment, channel]) == -1
            continue
        assert got == pytest.approx(REDUCE[reduce](run), rel=1e-6)
        if arg is not None:
            assert int(arg[row, segment, channel]) == first + run.index(REDUCE[reduce](run))


@pytest.mark.parametrize("reduce", list(REDUCE))
def test_runs_between_bounds(backend: str, reduce: str) -> None:
    src = torch.randint(-3, 4, (2, 7, 3)).float()
    out, arg = segments.segment_csr(src, BOUNDS, reduce)
    assert (arg is None) == (reduce in ("sum", "mean"))
    _check(out, arg, src, BOUNDS, reduce)
    shared = BOUNDS[:1]  # one row of bounds for all rows
    _check(*segments.segment_csr(src, shared, reduce), src, shared.expand(2, -1), reduce)


@pytest.mark.parametrize("reduce", list(REDUCE))
def test_runs_of_equal_indices(backend: str, reduce: str) -> None:
    src = torch.randint(-3, 4, (2, 7, 3)).float()
    index = torch.tensor([[0, 0, 1, 1, 1, 3, 3], [0, 1, 1, 1, 2, 3, 3]])
    bounds = torch.tensor([[0, 2, 5, 5, 7, 7], [0, 1, 4, 5, 7, 7]])
    _check(*segments.segment_coo(src, index, 5, reduce), src, bounds, reduce)


def test_integer_means_are_cut_towards_zero(backend: str) -> None:
    src, index = torch.tensor([-4, 1, 3, 4]), torch.tensor([0, 0, 1, 1])
    assert segments.segment_coo(src, index, reduce="mean")[0].tolist() == [-1, 3]
    assert segments.segment_csr(src, torch.tensor([0, 2, 4]), "mean")[0].tolist() == [-1, 3]


def test_no_bounds_are_no_runs() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert segments.segment_csr(torch.rand(0, 4), empty)[0].shape == (0, 4)
    assert segments.gather_csr(torch.rand(0, 4), empty).shape == (0, 4)
    assert segments.segment_coo(torch.rand(0, 4), empty)[0].shape == (0, 4)
    for run in (
        *(lambda x, r=reduce: segments.segment_csr(x, empty, r)[0] for reduce in REDUCE),
        *(lambda x, r=reduce: segments.segment_coo(x, empty, reduce=r)[0] for reduce in REDUCE),
        lambda x: segments.gather_coo(x, empty),
        lambda x: segments.gather_csr(x, empty),
    ):
        nothing = torch.rand(0, 0, 3, requires_grad=True)
        run(nothing).sum().backward()  # keeps its graph
        assert nothing.grad.shape == (0, 0, 3)


def test_initial_values_are_where_a_reduction_starts() -> None:
    src, index = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([0, 0, 2])
    start = torch.tensor([3.0, 5.0, 2.0])
    wanted = {
        "sum": ([8.0, 5.0, 4.0], None),
        "mean": ([4.0, 5.0, 4.0], None),
        "min": ([1.0, 5.0, 2.0], [0, -1, -1]),
        "max": ([4.0, 5.0, 2.0], [1, -1, -1]),
    }
    for reduce, (values, places) in wanted.items():
        out, arg = segments.segment_coo(src, index, reduce=reduce, initial=start)
        assert out.tolist() == values
        assert (None if arg is None else arg.tolist()) == places
    assert start.tolist() == [3.0, 5.0, 2.0]


def test_gathers_go_the_other_way(backend: str) -> None:
    src = torch.rand(2, 4, 3)
    bounds = torch.tensor([[0, 2, 5, 5, 6], [0, 3, 5, 6, 6]])
    index = torch.tensor([[0, 0, 1, 1, 1, 3], [0, 0, 0, 1, 1, 2]])
    wanted = torch.stack([src[0, index[0]], src[1, index[1]]])
    assert torch.equal(segments.gather_csr(src, bounds), wanted)
    assert torch.equal(segments.gather_coo(src, index), wanted)
    assert torch.equal(segments.gather_coo(src, index[:1].int()), src[:, index[0]])


def test_gradients() -> None:
    src = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    for reduce in REDUCE:
        assert torch.autograd.gradcheck(
            lambda value, reduce=reduce: segments.segment_csr(value, BOUNDS, reduce)[0], (src,)
        )
    few = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    bounds = torch.tensor([[0, 2, 5, 5, 6]])
    assert torch.autograd.gradcheck(lambda value: segments.gather_csr(value, bounds), (few,))


def test_bad_input(backend: str) -> None:
    src = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="reduce must be one of"):
        segments.segment_csr(src, torch.tensor([0, 3]), "median")
    with pytest.raises(ValueError, match="indptr must be ascending along its last axis"):
        segments.segment_csr(src, torch.tensor([0, 2, 1]))
    with pytest.raises(ValueError, match=r"indptr must be in \[0, 3\], got 4"):
        segments.segment_csr(src, torch.tensor([0, 4]))
    with pytest.raises(TypeError, match="indptr must be int64 or int32"):
        segments.segment_csr(src, torch.tensor([0.0, 3.0]))
    with pytest.raises(ValueError, match="index must be sorted along its last axis"):
        segments.segment_coo(src, torch.tensor([0, 2, 1]))
    with pytest.raises(ValueError, match="src must be of 1 entries along axis 0, one a run"):
        segments.gather_csr(src, torch.tensor([0, 4]))
    with pytest.raises(ValueError, match="its rows ending at one bound"):
        segments.gather_csr(torch.zeros(2, 1), torch.tensor([[0, 3], [0, 2]]))
    with pytest.raises(ValueError, match=r"index must be in \[0, 3\), got 3"):
        segments.gather_coo(src, torch.tensor([3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_means_are_rounded_once(backend: str, dtype: torch.dtype) -> None:
    src = torch.full((3000,), 30.0, dtype=dtype)
    ends, ids = torch.tensor([0, 3000]), torch.zeros(3000, dtype=torch.int64)
    assert segments.segment_csr(src, ends, "mean")[0].tolist() == [30.0]
    assert segments.segment_coo(src, ids, reduce="mean")[0].tolist() == [30.0]
