"""Layers against torch's dense ones, as a property: any grid, cloud and geometry of 1 to 3 axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

CONV: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Any] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


@dataclass
class Drawn:
    """A cloud on a grid and the numbers of a layer."""

    x: SparseConvTensor
    leaf: torch.Tensor
    ndim: int
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


@st.composite
def drawn(draw: Any, odd: bool = False) -> Drawn:
    ndim = draw(st.integers(1, 3))

    def axes(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=ndim, max_size=ndim))  # type: ignore[no-any-return]

    kernel = [2 * k - 1 for k in axes(1, 2)] if odd else axes(1, 4)
    stride, padding, dilation = axes(1, 3), axes(0, 2), axes(1, 2)
    # A 1 x 1 layer of stride 1 takes no padding.
    padding = [0] * ndim if set(kernel) == {1} else padding
    grid = axes(1, 6)
    seed = draw(st.integers(0, 2**16))
    groups = draw(st.sampled_from([1, 2, 4]))
    rng = np.random.default_rng(seed)
    cells = np.argwhere(rng.random((2, *grid)) < draw(st.sampled_from([0.0, 0.2, 0.6, 1.0])))
    leaf = torch.from_numpy(rng.standard_normal((len(cells), 4))).requires_grad_()
    x = SparseConvTensor(leaf, torch.from_numpy(cells).int(), grid, 2)
    return Drawn(x, leaf, ndim, kernel, stride, padding, dilation, groups)


def _same(out: SparseConvTensor, dense: torch.Tensor, bias: torch.Tensor) -> None:
    """Equal at the active sites; elsewhere the dense layer has the bare bias."""
    assert out.spatial_shape == list(dense.shape[2:])
    index = out.indices.long()
    active = torch.zeros(dense[:, 0].shape, dtype=torch.bool)
    active[tuple(index.unbind(1))] = True
    rows = dense.movedim(1, -1)
    ours = out.features.detach()
    np.testing.assert_allclose(ours, rows[tuple(index.unbind(1))].detach(), atol=1e-10)
    bare = bias.detach().expand(int((~active).sum()), -1)
    np.testing.assert_allclose(rows[~active].detach(), bare, atol=1e-10)


def _gradients(out: SparseConvTensor, leaf: torch.Tensor, weight: torch.Tensor) -> list[Any]:
    ramp = torch.sin(
        out.indices.double().sum(1, keepdim=True) + torch.arange(out.features.shape[1])
    )
    return list(torch.autograd.grad(out.features, (leaf, weight), ramp))


@pytest.mark.parametrize("examples", [40, pytest.param(1500, marks=pytest.mark.nightly)])
def test_strided(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(drawn())
    def check(d: Drawn) -> None:
        layer = getattr(spnn, f"SparseConv{d.ndim}d")(
            4, 8, d.kernel, d.stride, d.padding, d.dilation, d.groups
        ).double()
        grown = [n + 2 * p for n, p in zip(d.x.spatial_shape or [], d.padding, strict=True)]
        reach = [t * (k - 1) + 1 for t, k in zip(d.dilation, d.kernel, strict=True)]
        assume(all(n >= r for n, r in zip(grown, reach, strict=True)))
        dense = CONV[d.ndim](
            d.x.dense(), layer.kernel().movedim(-1, 1), layer.bias, d.stride, d.padding,
            d.dilation, d.groups,
        )  # fmt: skip
        out = layer(d.x)
        _same(out, dense, layer.bias)
        if len(out):
            index = out.indices.long()
            rows = dense.movedim(1, -1)[tuple(index.unbind(1))]
            ours = _gradients(out, d.leaf, layer.weight)
            theirs = _gradients(out.replace_feature(rows), d.leaf, layer.weight)
            for left, right in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(left, right, atol=1e-9)

    check()


@pytest.mark.parametrize("examples", [30, pytest.param(1500, marks=pytest.mark.nightly)])
def test_transposed(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(drawn())
    def check(d: Drawn) -> None:
        extra = [s - 1 for s in d.stride]
        if set(d.kernel) == {1}:  # a 1 x 1 layer of stride 1 is a linear map
            d.stride, extra = [2] * d.ndim, [1] * d.ndim
        layer = getattr(spnn, f"SparseConvTranspose{d.ndim}d")(
            4, 8, d.kernel, d.stride, d.padding, d.dilation, d.groups, output_padding=extra
        ).double()
        grid = [
            (n - 1) * s - 2 * p + t * (k - 1) + e + 1
            for n, s, p, t, k, e in zip(
                d.x.spatial_shape or [], d.stride, d.padding, d.dilation, d.kernel, extra,
                strict=True,
            )
        ]  # fmt: skip
        assume(min(grid) > 0)
        # Ours is [out, *k, in / groups]; torch's [in, out / groups, *k], group by group.
        parts = layer.kernel().movedim(-1, 0).chunk(d.groups, 1)
        dense = TRANSPOSED[d.ndim](
            d.x.dense(), torch.cat(parts, 0), layer.bias, d.stride, d.padding, extra, d.groups,
            d.dilation,
        )  # fmt: skip
        _same(layer(d.x), dense, layer.bias)

    check()


@pytest.mark.parametrize("examples", [30, pytest.param(1500, marks=pytest.mark.nightly)])
def test_submanifold_and_inverse(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(drawn(odd=True))
    def check(d: Drawn) -> None:
        layer = getattr(spnn, f"SubMConv{d.ndim}d")(4, 8, d.kernel, dilation=d.dilation).double()
        centre = [t * (k // 2) for t, k in zip(d.dilation, d.kernel, strict=True)]
        dense = CONV[d.ndim](
            d.x.dense(), layer.kernel().movedim(-1, 1), layer.bias, 1, centre, d.dilation
        )
        out = layer(d.x)
        assert torch.equal(out.indices, d.x.indices)
        rows = dense.movedim(1, -1)[tuple(out.indices.long().unbind(1))]
        np.testing.assert_allclose(out.features.detach(), rows.detach(), atol=1e-10)

        pad = [1] * d.ndim
        down = getattr(spnn, f"SparseConv{d.ndim}d")(4, 4, 3, 2, pad, indice_key="k").double()
        up = getattr(spnn, f"SparseInverseConv{d.ndim}d")(4, 8, 3, indice_key="k").double()
        coarse = down(d.x)
        back = up(coarse)
        assert torch.equal(back.indices, d.x.indices)
        extra = [(n - 1) % 2 for n in d.x.spatial_shape or []]
        dense = TRANSPOSED[d.ndim](
            coarse.dense(), up.kernel().movedim(-1, 0), up.bias, 2, pad, extra
        )
        rows = dense.movedim(1, -1)[tuple(back.indices.long().unbind(1))]
        np.testing.assert_allclose(back.features.detach(), rows.detach(), atol=1e-10)

    check()
