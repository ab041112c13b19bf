"""Sinkhorn: entropic optimal transport between clouds (reference and CPU; plain torch).

Meaning: the cheapest way to move one weighted cloud onto another, smoothed by an entropy.
Formula: cost `C_ij = |x_i - y_j|^p / p`, p = 1 or 2; log-domain iterations, exactly `iterations` of
    `f_i = -eps * logsumexp_j((g_j - C_ij) / eps + log b_j)`, then
    `g_j = -eps * logsumexp_i((f_i - C_ij) / eps + log a_i)`,
with g = 0 at the start, `eps = blur^p`, a and b the weights divided by their sums (uniform where
None). Returned: `cost = sum_i a_i f_i + sum_j b_j g_j`, the dual value of the regularised problem.
`debias=True` gives the Sinkhorn divergence `cost(x, y) - cost(x, x)/2 - cost(y, y)/2`.
Numerical contract: float64 inputs in float64, all others in float32. After the last half step the
column sums of the plan `P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps)` equal b to 1e-5 relative in
float32 (1e-12 in float64); the row sums approach a with the iterations: ask for more if
`marginal_error` is not small enough. No early stop, so the cost of a call is known.
Gradient: of the cost to both clouds and the weights, through the iterations.
Determinism: torch's own sums; the same thread count gives the same bytes.
Errors: blur <= 0, iterations < 1, p not 1 or 2, negative or all-zero weights, empty clouds.

Example:
    >>> import torch
    >>> from sparse3d.pointops import sinkhorn
    >>> x = torch.zeros(1, 4, 3)
    >>> round(float(sinkhorn(x, x + torch.tensor([2.0, 0, 0])).cost), 3)
    2.0
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from sparse3d._check import fail, same_device, tensor

from . import _inputs


class Sinkhorn(NamedTuple):
    """Cost (B,), potentials (B, N) and (B, M), and the largest error of a row sum (B,)."""

    cost: torch.Tensor
    f: torch.Tensor
    g: torch.Tensor
    marginal_error: torch.Tensor


def _weights(name: str, value: torch.Tensor | None, cloud: torch.Tensor) -> torch.Tensor:
    batch, size, _ = cloud.shape
    if value is None:
        return cloud.new_full((batch, size), 1.0 / size)
    tensor(name, value)
    same_device(**{name: value, "the points": cloud})
    if value.shape != (batch, size):
        fail(name, f"of shape [{batch}, {size}]", list(value.shape))
    if _inputs.values_known(value) and not bool((value >= 0).all() & (value.sum(1) > 0).all()):
        fail(name, "non-negative with a positive sum a cloud", "other values")
    weights = value.to(cloud.dtype)
    return weights / weights.sum(1, keepdim=True)


def _solve(
    x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, eps: float, p: int, n: int
) -> Sinkhorn:
    difference = x[:, :, None, :] - y[:, None, :, :]  # [B, N, M, D]
    squared = (difference * difference).sum(-1)
    # The root's slope at 0 is infinite; equal points get slope 0 instead.
    apart = squared > 0
    root = torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)
    cost = squared / 2 if p == 2 else root
    log_a, log_b = a.log()[:, :, None], b.log()[:, None, :]
    g = torch.zeros_like(b)
    f = torch.zeros_like(a)
    for _ in range(n):
        f = -eps * torch.logsumexp((g[:, None, :] - cost) / eps + log_b, 2)
        g = -eps * torch.logsumexp((f[:, :, None] - cost) / eps + log_a, 1)
    value = (a * f).sum(1) + (b * g).sum(1)
    plan = torch.exp((f[:, :, None] + g[:, None, :] - cost) / eps + log_a + log_b)
    error = (plan.sum(2) - a).abs().amax(1).detach()
    return Sinkhorn(value, f, g, error)


def sinkhorn(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    blur: float = 0.05,
    p: int = 2,
    iterations: int = 100,
    x_weights: torch.Tensor | None = None,
    y_weights: torch.Tensor | None = None,
    debias: bool = False,
) -> Sinkhorn:
    """Entropic transport cost between clouds.

    Args:
        x: (B, N, D) floating, N >= 1.
        y: (B, M, D), same dtype and device, M >= 1.
        blur: length below which the transport is smoothed; `eps = blur ** p`.
        p: exponent of the distance, 1 or 2.
        iterations: full iterations, exactly.
        x_weights: (B, N) and (B, M) non-negative masses, uniform where None.
        y_weights: as `x_weights`.
        debias: subtract half of each cloud's cost to itself.

    Returns:
        `Sinkhorn(cost, f, g, marginal_error)`.
    """
    _inputs.points("x", x, 3)
    _inputs.points("y", y, 3)
    _inputs.alike("x", x, "y", y)
    if not 0 < blur < float("inf"):
        fail("blur", "finite and > 0", blur)
    if p not in (1, 2):
        fail("p", "1 or 2", p)
    _inputs.count("iterations", iterations, 1)
    _inputs.peopled("x", x)
    _inputs.peopled("y", y)
    x, y = _inputs.computed(x), _inputs.computed(y)
    a, b = _weights("x_weights", x_weights, x), _weights("y_weights", y_weights, y)
    eps = float(blur) ** p
    found = _solve(x, y, a, b, eps, p, iterations)
    if not debias:
        return found
    own = _solve(x, x, a, a, eps, p, iterations).cost + _solve(y, y, b, b, eps, p, iterations).cost
    return found._replace(cost=found.cost - own / 2)
