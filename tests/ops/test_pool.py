"""Pools over a kernel map against the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import oracle
import pytest
import torch
from contract.engine import on, oracle_map, pairs_of, random
from tolerance import DTYPES, FORWARD, GRADIENT, assert_close, assert_same

from sparse3d._cases.clouds import GEOMETRIES, Case, cases
from sparse3d.ops import pool as ops

CASES = list(cases())
FEW = [
    Case("interleaved", g)
    for g in GEOMETRIES
    if g.name in ("3d_k2s2", "3d_subm_k3", "2d_k3s2p1_d2")
]
POOLS = (ops.pool_sum, ops.pool_max, ops.pool_max_grad)


@dataclass
class Pairs:
    """The least a kernel map has to offer."""

    src: torch.Tensor
    dst: torch.Tensor
    splits: torch.Tensor
    num_in: int
    num_out: int

    def plan(self) -> list[torch.Tensor]:
        return []

    def grad_plan(self) -> list[torch.Tensor]:
        return []


def _check(features: torch.Tensor, found: oracle.Map, num_out: int) -> None:
    pairs, dtype = pairs_of(found), features.dtype
    x = features.double().numpy()
    out = ops.pool_sum(features, *pairs, num_out)
    assert out.dtype == dtype
    assert_close(out, oracle.pool_sum(x, found.pairs, num_out), dtype, FORWARD, "sum")
    best, arg = ops.pool_max(features, *pairs, num_out)
    expected, where = oracle.pool_max(x, found.pairs, num_out)
    assert best.dtype == dtype
    assert arg.dtype == torch.int32
    assert_same(best, expected, "max")
    assert_same(arg, where, "arg")
    grad = random((num_out, features.shape[1]), dtype, 9)
    back = ops.pool_max_grad(grad, arg, *pairs, len(features))
    assert back.dtype == dtype
    assert_close(
        back, oracle.pool_max_grad(grad.double().numpy(), where, len(x)), dtype, GRADIENT, "grad"
    )


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case: Case, backend: str) -> None:
    found = oracle_map(case, "footprint")
    with on(backend, *POOLS):
        _check(random((len(case.coords), 5), torch.float32), found, len(found.out))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 3, 32])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_dtypes_and_channels(case: Case, channels: int, dtype: torch.dtype, backend: str) -> None:
    found = oracle_map(case, "floor")
    with on(backend, *POOLS):
        _check(random((len(case.coords), channels), dtype), found, len(found.out))


@pytest.mark.parametrize("case", FEW, ids=str)
def test_ties_go_to_the_lowest_tap_and_nan_wins(case: Case, backend: str) -> None:
    found = oracle_map(case, "footprint")
    features = random((len(case.coords), 4), torch.float32).round()
    features[::5, 1] = float("nan")
    features[:, 2] = float("-inf")
    features[:, 3] = 0.0
    with on(backend, ops.pool_max):
        best, arg = ops.pool_max(features, *pairs_of(found), len(found.out))
    expected, where = oracle.pool_max(features.numpy(), found.pairs, len(found.out))
    assert_same(arg, where)
    np.testing.assert_array_equal(best.numpy(), expected)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("case", FEW, ids=str)
def test_on_the_transposed_map(case: Case, backend: str) -> None:
    """Unpooling: several coarse rows may reach one fine row, and some fine rows none."""
    found = oracle_map(case, "given")
    turned = oracle.Map(found.transposed().pairs, oracle.sites(case.coords))
    with on(backend, *POOLS):
        _check(random((len(found.out), 5), torch.float32), turned, len(case.coords))


@pytest.mark.parametrize("rule", ["footprint", "submanifold"])
def test_duplicate_rows(rule: str, backend: str) -> None:
    """Under the footprint rule each counts: one output then has several pairs in one tap."""
    geometry = next(g for g in GEOMETRIES if g.name == "3d_subm_k3")
    case = Case("duplicates", geometry)
    found = oracle_map(case, rule)
    with on(backend, *POOLS):
        _check(random((len(case.coords), 5), torch.float32), found, len(found.out))


def test_derivatives(backend: str) -> None:
    case = Case("interleaved", next(g for g in GEOMETRIES if g.name == "1d_k5s3p1"))
    found = oracle_map(case, "footprint")
    pairs, rows = pairs_of(found), len(found.out)
    x = random((len(case.coords), 2), torch.float64).requires_grad_()
    with on(backend, *POOLS):
        arg = ops.pool_max(x, *pairs, rows)[1]
        assert not arg.requires_grad
        for call in (
            lambda v: ops.pool_sum(v, *pairs, rows),
            lambda v: ops.pool_max(v, *pairs, rows)[0],
        ):
            assert torch.autograd.gradcheck(call, (x,))
            assert torch.autograd.gradgradcheck(call, (x,))
        grad = random((rows, 2), torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda g: ops.pool_max_grad(g, arg, *pairs, len(x)), (grad,)
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_public_functions(dtype: torch.dtype, backend: str) -> None:
    case = FEW[0]
    found = oracle_map(case, "footprint")
    pairs = Pairs(*pairs_of(found), len(case.coords), len(found.out))
    wide = random((len(case.coords), 10), dtype)[:, ::2].requires_grad_()
    x = wide.detach().double().numpy()
    with on(backend, *POOLS):
        mean = ops.mean_pool(wide, pairs)
        assert_close(mean, oracle.pool_mean(x, found.pairs, len(found.out)), dtype)
        best = oracle.pool_max(x, found.pairs, len(found.out))[0]
        assert_close(ops.max_pool(wide, pairs), best, dtype)
        floored = ops.max_pool(wide, pairs, floor_at_zero=True)
        assert_close(floored, np.maximum(best, 0), dtype)
        assert mean.dtype == floored.dtype == dtype
        total = ops.sum_pool(wide, pairs)
        (back,) = torch.autograd.grad(total, wide, random(total.shape, dtype, 3))
    expected = oracle.pool_sum(
        random(total.shape, dtype, 3).double().numpy(), found.transposed().pairs, len(x)
    )
    assert_close(back, expected, dtype, GRADIENT)


def test_mean_of_many_half_precision_rows_counts_them_exactly(backend: str) -> None:
    """A count kept in float16 would stick at 2048."""
    rows = 3000
    found = oracle.Map([[(row, 0)] for row in range(rows)], [(0, 0)])
    pairs = Pairs(*pairs_of(found), rows, 1)
    with on(backend, ops.pool_sum):
        mean = ops.mean_pool(torch.full((rows, 1), 3.0, dtype=torch.float16), pairs)
    assert mean.item() == 3.0


def test_bad_arguments() -> None:
    found = oracle_map(FEW[0], "footprint")
    pairs = Pairs(*pairs_of(found), len(FEW[0].coords), len(found.out))
    for call in (ops.sum_pool, ops.mean_pool, ops.max_pool):
        with pytest.raises(ValueError, match=r"features must be of .* rows as the kernel map"):
            call(torch.zeros(pairs.num_in + 1, 2), pairs)
        with pytest.raises(TypeError, match=r"features must be float32.*got torch.int64"):
            call(torch.zeros(pairs.num_in, 2, dtype=torch.int64), pairs)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_ties_share_or_the_first_takes_all(case: Case, floor: bool, backend: str) -> None:
    """Whole numbers from -2 to 2: windows are full of equal maxima, and of zeros."""
    found = oracle_map(case, "footprint" if "subm" not in case.geometry.name else "submanifold")
    rows, num_out = len(case.coords), len(found.out)
    values = np.random.default_rng(4).integers(-2, 3, (rows, 3)).astype(np.float64)
    values[0] = -np.inf
    grad = np.random.default_rng(5).standard_normal((num_out, 3))
    pairs = Pairs(*pairs_of(found), rows, num_out)
    out, _ = oracle.pool_max(values, found.pairs, num_out)
    out = np.maximum(out, 0) if floor else out
    wanted = np.zeros_like(values)
    for p, q in {pair for tap in found.pairs for pair in tap}:
        hits = (values[p] == out[q]) & np.isfinite(values[p])
        wanted[p] += np.where(hits, grad[q], 0)
    x = torch.from_numpy(values).requires_grad_()
    with on(backend, *POOLS):
        made = ops.max_pool(x, pairs, floor_at_zero=floor, ties="all")
        (back,) = torch.autograd.grad(made, x, torch.from_numpy(grad))
        (first,) = torch.autograd.grad(
            ops.max_pool(x, pairs, floor_at_zero=floor), x, torch.from_numpy(grad)
        )
    assert_same(made, out)
    assert_close(back, wanted, torch.float64)
    assert not np.allclose(first.numpy(), wanted)


def test_ties_second_derivatives(backend: str) -> None:
    found = oracle_map(FEW[0], "footprint")
    rows = len(FEW[0].coords)
    pairs = Pairs(*pairs_of(found), rows, len(found.out))
    x = random((rows, 2), torch.float64).requires_grad_()
    fast = backend == "metal"  # projections: in the emulator all columns would take minutes
    with on(backend, *POOLS):
        call = lambda v: ops.max_pool(v, pairs, ties="all")  # noqa: E731
        assert torch.autograd.gradcheck(call, (x,), fast_mode=fast)
        assert torch.autograd.gradgradcheck(call, (x,), fast_mode=fast)
    with pytest.raises(ValueError, match=r"ties must be one of .*, got 'none'"):
        ops.max_pool(x, pairs, ties="none")
