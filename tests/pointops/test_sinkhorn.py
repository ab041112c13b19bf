from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from sparse3d.pointops import sinkhorn


def test_approaches_the_exact_assignment() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(1, 24, 3, generator=draw, dtype=torch.float64)
    y = torch.rand(1, 24, 3, generator=draw, dtype=torch.float64)
    table = oracle.distances64(x[0], y[0]) / 2
    rows, columns = linear_sum_assignment(table)
    exact = table[rows, columns].mean()
    found = sinkhorn(x, y, blur=0.02, iterations=2000)
    # Entropy of a plan between n points is at most log n^2.
    assert float(found.cost) == pytest.approx(exact, abs=0.02**2 * 2 * np.log(24))
    assert float(found.marginal_error) < 1e-3


def test_column_sums_are_the_stated_ones() -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        x, y = torch.rand(2, 10, 3, dtype=dtype), torch.rand(2, 14, 3, dtype=dtype)
        b = torch.rand(2, 14, dtype=dtype)
        found = sinkhorn(x, y, blur=0.3, iterations=20, y_weights=b)
        cost = ((x[:, :, None] - y[:, None]) ** 2).sum(-1) / 2
        b = b / b.sum(1, keepdim=True)
        plan = (found.f[:, :, None] + found.g[:, None] - cost) / 0.3**2
        plan = plan.exp() * b[:, None] / 10
        assert ((plan.sum(1) - b).abs() / b).max() < tolerance


def test_divergence_of_a_cloud_with_itself_is_zero() -> None:
    x = torch.rand(1, 16, 3, dtype=torch.float64)
    found = sinkhorn(x, x[:, torch.randperm(16)], blur=0.1, iterations=300, debias=True)
    assert float(found.cost) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_gradients(p: int) -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.rand(1, 4, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    y = torch.rand(1, 5, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda a, b: sinkhorn(a, b, blur=0.5, iterations=6, p=p).cost, (x, y)
    )
    same = torch.zeros(1, 3, 3, requires_grad=True)
    sinkhorn(same, torch.zeros(1, 3, 3), p=1).cost.sum().backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_bad_input() -> None:
    x = torch.zeros(1, 3, 3)
    with pytest.raises(ValueError, match="blur must be finite and > 0"):
        sinkhorn(x, x, blur=0)
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        sinkhorn(x, x, p=3)
    with pytest.raises(ValueError, match="iterations must be >= 1"):
        sinkhorn(x, x, iterations=0)
    with pytest.raises(ValueError, match="at least one point"):
        sinkhorn(x, x[:, :0])
    with pytest.raises(ValueError, match="x_weights must be non-negative"):
        sinkhorn(x, x, x_weights=torch.tensor([[1.0, -1.0, 1.0]]))
