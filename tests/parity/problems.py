"""Random layers and a small net, built alike from spconv and ``sparse3d.nn``; imports neither."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

STRIDED = ("SparseConv", "SparseConvTranspose", "SparseMaxPool", "SparseInverseConv")


@dataclass
class Problem:
    """One layer and what goes into it; ``answer`` is filled by whoever solves it."""

    kind: str
    ndim: int
    shape: list[int]
    batch_size: int
    coords: torch.Tensor
    features: torch.Tensor
    channels: tuple[int, int]
    numbers: dict[str, Any]
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    answer: dict[str, torch.Tensor] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = "-".join(f"{k[0]}{v}".replace(" ", "") for k, v in self.numbers.items())
        return f"{self.kind}{self.ndim}d-{numbers}"


def _cloud(rng: np.random.Generator, shape: list[int], batch_size: int) -> torch.Tensor:
    rows = np.argwhere(rng.random((batch_size, *shape)) < 0.25)
    rng.shuffle(rows)
    return torch.from_numpy(rows.astype(np.int32, order="C"))  # spconv ignores strides


def _axes(rng: np.random.Generator, ndim: int, choices: tuple[int, ...]) -> list[int]:
    return [int(v) for v in rng.choice(choices, ndim)]


def layers(count: int, seed: int) -> list[Problem]:
    """Random layers of every kind, 1 to 4 axes, asymmetric kernels, strides, padding, dilation."""
    rng = np.random.default_rng(seed)
    kinds = ("SubMConv", *STRIDED)
    return [_layer(rng, kinds[index % len(kinds)], 1 + index % 4) for index in range(count)]


def _layer(rng: np.random.Generator, kind: str, ndim: int) -> Problem:
    # spconv 2.3.8 has no pools of 4 axes on CPU, and leaves dilation out of transposed grids.
    ndim = min(ndim, 3) if kind == "SparseMaxPool" else ndim
    shape = [int(v) for v in rng.integers(7, 10 if ndim < 4 else 8, ndim)]
    coords = _cloud(rng, shape, 2)
    channels = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    if kind == "SubMConv":
        numbers: dict[str, Any] = {
            "kernel_size": _axes(rng, ndim, (1, 3, 5) if ndim < 4 else (1, 3)),
            "dilation": _axes(rng, ndim, (1, 2)),
        }
    else:
        numbers = {
            "kernel_size": _axes(rng, ndim, (1, 2, 3, 4)),
            "stride": _axes(rng, ndim, (1, 2, 3)),
            "padding": _axes(rng, ndim, (0, 1)),
            "dilation": _axes(rng, ndim, (1, 2)) if kind == "SparseConv" else [1] * ndim,
        }
    if kind == "SparseMaxPool":
        channels = (channels[0], channels[0])
    else:
        numbers["bias"] = bool(rng.random() < 0.5)
    if set(numbers["kernel_size"]) == {1}:  # kernels of one tap have golden vectors
        numbers["kernel_size"][0] = 3
    features = torch.from_numpy(rng.standard_normal((len(coords), channels[0])).astype(np.float32))
    return Problem(kind, ndim, shape, 2, coords, features, channels, numbers)


def build(spconv: ModuleType, problem: Problem, **extra: Any) -> tuple[nn.Module, nn.Module | None]:
    """The problem's layer, and for an inverse layer the strided one it undoes."""
    numbers, suffix = dict(problem.numbers), f"{problem.ndim}d"
    if problem.kind == "SparseMaxPool":
        return getattr(spconv, f"SparseMaxPool{suffix}")(**numbers, **extra), None
    c_in, c_out = problem.channels
    if problem.kind != "SparseInverseConv":
        return getattr(spconv, problem.kind + suffix)(c_in, c_out, **numbers, **extra), None
    bias = numbers.pop("bias")
    down = getattr(spconv, f"SparseConv{suffix}")(c_in, c_in, bias=bias, indice_key="d", **numbers)
    up = getattr(spconv, f"SparseInverseConv{suffix}")(
        c_in, c_out, numbers["kernel_size"], bias=bias, indice_key="d"
    )
    return down, up


def solve(spconv: ModuleType, problem: Problem, **extra: Any) -> dict[str, torch.Tensor]:
    """Output sites, features, and gradients for an upstream gradient fixed by the sites."""
    first, second = build(spconv, problem, **extra)
    model = nn.ModuleList([m for m in (first, second) if m is not None])
    if problem.state:
        model.load_state_dict(problem.state)
    model.train()
    x = problem.features.clone().requires_grad_()
    out = spconv.SparseConvTensor(x, problem.coords, problem.shape, problem.batch_size)
    for layer in model:
        out = layer(out)
    return _answer(out, model, x)


def _answer(out: Any, model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    torch.autograd.backward(out.features, upstream(out.indices, out.features))
    assert x.grad is not None
    return {
        "coords": out.indices,
        "shape": torch.tensor([int(n) for n in out.spatial_shape]),
        "features": out.features.detach(),
        "grad": x.grad,
        **{f"grad.{k}": p.grad for k, p in model.named_parameters() if p.grad is not None},
        **{f"state.{k}": v.detach().clone() for k, v in model.state_dict().items()},
    }


def upstream(coords: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """A gradient that depends on each row's site, not on the order of the rows."""
    steps = torch.arange(1, coords.shape[1] + 1, dtype=torch.float64)
    phase = (coords.double() * steps * 1.7).sum(1, keepdim=True)
    channel = torch.arange(features.shape[1], dtype=torch.float64)
    return torch.sin(phase + channel).to(features.dtype)


def net(spconv: ModuleType) -> nn.Module:
    """A small encoder-decoder in the usual style: batch norms, keys shared, inverse layers."""

    def block(c_in: int, c_out: int, layer: nn.Module) -> list[nn.Module]:
        return [layer, nn.BatchNorm1d(c_out, eps=1e-3, momentum=0.01), nn.ReLU()]

    def subm(c_in: int, c_out: int, key: str) -> list[nn.Module]:
        made = spconv.SubMConv3d(c_in, c_out, 3, padding=1, bias=False, indice_key=key)
        return block(c_in, c_out, made)

    def down(c_in: int, c_out: int, key: str) -> list[nn.Module]:
        made = spconv.SparseConv3d(c_in, c_out, 3, 2, padding=1, bias=False, indice_key=key)
        return block(c_in, c_out, made)

    def up(c_in: int, c_out: int, key: str) -> list[nn.Module]:
        made = spconv.SparseInverseConv3d(c_in, c_out, 3, bias=False, indice_key=key)
        return block(c_in, c_out, made)

    made: nn.Module = spconv.SparseSequential(
        *subm(4, 8, "s1"), *subm(8, 8, "s1"),
        *down(8, 12, "d2"), *subm(12, 12, "s2"),
        *down(12, 16, "d3"), *subm(16, 16, "s3"),
        *up(16, 12, "d3"), *subm(12, 12, "s2"),
        *up(12, 8, "d2"), *subm(8, 8, "s1"),
        spconv.SubMConv3d(8, 5, 1, bias=True),
    )  # fmt: skip
    return made


def net_problem(seed: int) -> Problem:
    """Input of :func:`net`; the state is the peer's own initial one."""
    rng = np.random.default_rng(seed)
    shape = [21, 17, 14]
    coords = _cloud(rng, shape, 2)
    features = torch.from_numpy(rng.standard_normal((len(coords), 4)).astype(np.float32))
    return Problem("net", 3, shape, 2, coords, features, (4, 5), {})


def solve_net(spconv: ModuleType, problem: Problem) -> dict[str, torch.Tensor]:
    """Forward and backward of :func:`net` in training, from the problem's state if it has one."""
    model = net(spconv)
    if problem.state:
        model.load_state_dict(problem.state)
    else:
        problem.state = {k: v.clone() for k, v in model.state_dict().items()}
    model.train()
    x = problem.features.clone().requires_grad_()
    out = model(spconv.SparseConvTensor(x, problem.coords, problem.shape, problem.batch_size))
    return _answer(out, model, x)
