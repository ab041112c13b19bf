"""Random networks, built layer by layer, against dense grids: sites, features and gradients.

A dense twin holds `[B, C, *grid]` values and a mask of sites. Masks go through the equation of
`oracle` as plain convolutions of ones, features through torch's dense layers; the twin knows no row
order and no kernel map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry, add, cat

CHANNELS = st.sampled_from([1, 2, 3, 5])
STEPS = 8
MOST_CELLS = 4000


def shifted(
    dense: torch.Tensor, tap: Sequence[int], stride: Sequence[int], grid: Sequence[int]
) -> torch.Tensor:
    """`out[q] = dense[q * stride + tap]`, 0 outside."""
    for axis, (start, step, size) in enumerate(zip(tap, stride, grid, strict=True), start=2):
        places = torch.arange(size) * step + start
        inside = (places >= 0) & (places < dense.shape[axis])
        taken = dense.index_select(axis, places.clamp(0, dense.shape[axis] - 1))
        shape = [1] * dense.ndim
        shape[axis] = size
        dense = torch.where(inside.reshape(shape), taken, torch.zeros((), dtype=dense.dtype))
    return dense


def spread(
    dense: torch.Tensor, tap: Sequence[int], stride: Sequence[int], grid: Sequence[int]
) -> torch.Tensor:
    """The transpose of `shifted`: `out[q * stride + tap] += dense[q]`."""
    for axis, (start, step, size) in enumerate(zip(tap, stride, grid, strict=True), start=2):
        places = torch.arange(dense.shape[axis]) * step + start
        kept = ((places >= 0) & (places < size)).nonzero()[:, 0]
        shape = list(dense.shape)
        shape[axis] = size
        out = dense.new_zeros(shape)
        dense = out.index_add(axis, places[kept], dense.index_select(axis, kept))
    return dense


@dataclass
class Numbers:
    """Kernel, stride, padding and dilation, one entry an axis."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    def taps(self) -> list[list[int]]:
        """Offset of each tap, row-major, the last axis fastest."""
        offsets: list[list[int]] = [[]]
        for k, p, d in zip(self.kernel, self.padding, self.dilation, strict=True):
            offsets = [[*before, t * d - p] for before in offsets for t in range(k)]
        return offsets

    def down(self, grid: Sequence[int]) -> list[int]:
        rows = zip(grid, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in rows]

    def up(self, grid: Sequence[int]) -> list[int]:
        rows = zip(grid, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in rows]


@dataclass
class Pair:
    """A sparse tensor and its dense twin; `undo` is what an inverse layer of a key would need."""

    sparse: SparseConvTensor
    values: torch.Tensor
    mask: torch.Tensor
    undo: dict[str, tuple[Numbers, torch.Tensor]]

    @property
    def grid(self) -> list[int]:
        return list(self.mask.shape[2:])

    @property
    def channels(self) -> int:
        return int(self.values.shape[1])


def gathered(values: torch.Tensor, numbers: Numbers, grid: Sequence[int]) -> torch.Tensor:
    """[K, B, C, *grid]: what each output sees through each tap."""
    return torch.stack([shifted(values, tap, numbers.stride, grid) for tap in numbers.taps()])


def weighted(seen: torch.Tensor, kernel: torch.Tensor, groups: int) -> torch.Tensor:
    """Sum over taps and input channels; `kernel` is [out, *k, in / groups]."""
    flat = kernel.reshape(groups, kernel.shape[0] // groups, -1, kernel.shape[-1])
    parts = seen.reshape(seen.shape[0], seen.shape[1], groups, -1, *seen.shape[3:])
    out = torch.einsum("kbgi...,goki->bgo...", parts, flat)
    return out.reshape(seen.shape[1], kernel.shape[0], *seen.shape[3:])


class Networks(RuleBasedStateMachine):
    """A network grows by one layer a step; the last tensor and a few before it can be used."""

    backend = "reference"
    tensors = Bundle("tensors")

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.keys = 0
        self.last: Pair | None = None
        self.place = _registry.force(self.backend)
        self.place.__enter__()

    def teardown(self) -> None:
        try:
            self.check_gradients()
        finally:
            self.place.__exit__(None, None, None)

    def check_gradients(self) -> None:
        """Of a random direction of the last tensor, in every leaf on its path."""
        if self.last is None or not self.last.sparse.features.requires_grad:
            return
        ours, twin = self.last.sparse.features, self.last.values
        index = self.last.sparse.indices.long().unbind(1)
        upstream = torch.randn(twin.movedim(1, -1).shape, dtype=torch.float64)
        mine = torch.autograd.grad(
            (ours * upstream[index]).sum(), [leaf for leaf, _ in self.leaves], allow_unused=True
        )
        masked = (twin * self.last.mask).movedim(1, -1)
        theirs = torch.autograd.grad(
            (masked * upstream).sum(), [copy for _, copy in self.leaves], allow_unused=True
        )
        for left, right, (leaf, _) in zip(mine, theirs, self.leaves, strict=True):
            zero = torch.zeros_like(leaf)
            got = zero if left is None else left
            wanted = zero if right is None else right.reshape(leaf.shape)
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9 * self.size(wanted))

    @staticmethod
    def size(values: torch.Tensor) -> float:
        """1 plus the largest entry."""
        return 1 + float(values.detach().abs().max()) if values.numel() else 1.0

    def leaf(self, value: torch.Tensor) -> torch.Tensor:
        """A parameter's twin."""
        copy = value.detach().clone().requires_grad_()
        self.leaves.append((value, copy))
        return copy

    def give(self, pair: Pair) -> Pair:
        self.last = pair
        return pair

    def key(self) -> str:
        self.keys += 1
        return f"k{self.keys}"

    @initialize(
        target=tensors,
        ndim=st.integers(1, 4),
        batch=st.integers(1, 3),
        side=st.integers(1, 6),
        channels=CHANNELS,
        share=st.sampled_from([0.4, 0.1, 1.0, 0.0]),
        hole=st.sampled_from([3, 0, 1, 2]),
        seed=st.integers(0, 2**20),
    )
    def begin(
        self, ndim: int, batch: int, side: int, channels: int, share: float, hole: int, seed: int
    ) -> Pair:
        torch.manual_seed(seed)
        grid = [max(1, min(side, 4 if ndim > 2 else 6) - axis % 2) for axis in range(ndim)]
        chosen = torch.rand(batch, *grid) < share
        if hole < batch:
            chosen[hole] = False  # an empty sample
        sites = chosen.nonzero()
        sites = sites[torch.randperm(len(sites))]
        features = torch.randn(len(sites), channels, dtype=torch.float64, requires_grad=True)
        copy = self.leaf(features)
        dense = torch.zeros(batch, *grid, channels, dtype=torch.float64)
        dense = dense.index_put(tuple(sites.unbind(1)), copy).movedim(-1, 1)
        x = SparseConvTensor(features, sites.int(), grid, batch)
        return self.give(Pair(x, dense, chosen[:, None].double(), {}))

    def apply(self, layer: Any, pair: Pair) -> tuple[SparseConvTensor, torch.Tensor, Any]:
        """The layer's output, and the twins of its kernel and bias."""
        layer = layer.double()
        kernel, bias = layer.kernel(), layer.bias
        copy = self.leaf(layer.weight)
        twin = copy
        if layer.stores_transposed:
            twin = copy.reshape(layer.in_channels, layer.out_channels).t().reshape(kernel.shape)
        shift = None
        if bias is not None:
            shift = self.leaf(bias).reshape(1, -1, *[1] * layer.ndim)
        return layer(pair.sparse), twin, 0.0 if shift is None else shift

    @rule(
        target=tensors, pair=tensors, out=CHANNELS, data=st.data(), bias=st.booleans(),
        grouped=st.booleans(),
    )  # fmt: skip
    def submanifold(self, pair: Pair, out: int, data: Any, bias: bool, grouped: bool) -> Pair:
        ndim = len(pair.grid)
        kernel = data.draw(st.lists(st.sampled_from([1, 3]), min_size=ndim, max_size=ndim))
        dilation = data.draw(st.lists(st.integers(1, 2), min_size=ndim, max_size=ndim))
        groups = pair.channels if grouped else 1
        out = pair.channels if grouped else out
        layer = getattr(spnn, f"SubMConv{ndim}d")(
            pair.channels, out, kernel, dilation=dilation, groups=groups, bias=bias
        )
        x, weight, shift = self.apply(layer, pair)
        padding = [d * (k // 2) for k, d in zip(kernel, dilation, strict=True)]
        numbers = Numbers(kernel, [1] * ndim, padding, dilation)
        values = weighted(gathered(pair.values, numbers, pair.grid), weight, groups)
        return self.give(replace(pair, sparse=x, values=(values + shift) * pair.mask))

    def numbers(self, pair: Pair, data: Any) -> Numbers:
        ndim = len(pair.grid)

        def axes(low: int, high: int) -> list[int]:
            return data.draw(st.lists(st.integers(low, high), min_size=ndim, max_size=ndim))  # type: ignore[no-any-return]

        largest = 3 if ndim < 4 else 2
        kernel, stride = axes(1, largest), axes(1, 2)
        padding, dilation = axes(0, 1), axes(1, 2)
        if set(kernel) == {1} and set(stride) == {1}:
            padding = [0] * ndim
        return Numbers(kernel, stride, padding, dilation)

    @rule(target=tensors, pair=tensors, out=CHANNELS, data=st.data(), bias=st.booleans())
    def strided(self, pair: Pair, out: int, data: Any, bias: bool) -> Pair:
        numbers, ndim = self.numbers(pair, data), len(pair.grid)
        grid = numbers.down(pair.grid)
        key = self.key()
        layer = getattr(spnn, f"SparseConv{ndim}d")(
            pair.channels, out, numbers.kernel, numbers.stride, numbers.padding,
            numbers.dilation, bias=bias, indice_key=key,
        )  # fmt: skip
        if min(grid) < 1:
            with pytest.raises(ValueError, match="output grid must be at least 1"):
                layer.double()(pair.sparse)
            return pair
        x, weight, shift = self.apply(layer, pair)
        values = weighted(gathered(pair.values, numbers, grid), weight, 1)
        mask = (gathered(pair.mask, numbers, grid).sum(0) > 0).double()
        undo = pair.undo if layer.is_pointwise else {**pair.undo, key: (numbers, pair.mask)}
        return self.give(Pair(x, (values + shift) * mask, mask, undo))

    @rule(target=tensors, pair=tensors, out=CHANNELS, data=st.data(), bias=st.booleans())
    def transposed(self, pair: Pair, out: int, data: Any, bias: bool) -> Pair:
        numbers, ndim = self.numbers(pair, data), len(pair.grid)
        grid = numbers.up(pair.grid)
        cells = pair.mask.shape[0]
        for size in grid:
            cells *= max(size, 0)
        hypothesis.assume(0 < cells <= MOST_CELLS)
        layer = getattr(spnn, f"SparseConvTranspose{ndim}d")(
            pair.channels, out, numbers.kernel, numbers.stride, numbers.padding,
            numbers.dilation, bias=bias,
        )  # fmt: skip
        x, weight, shift = self.apply(layer, pair)
        if layer.is_pointwise:
            values = weighted(pair.values[None], weight, 1)
            return self.give(replace(pair, sparse=x, values=(values + shift) * pair.mask))
        values, mask = self.upward(pair, numbers, weight, grid)
        return self.give(Pair(x, (values + shift) * mask, mask, pair.undo))

    @staticmethod
    def upward(
        pair: Pair, numbers: Numbers, weight: torch.Tensor, grid: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Each value times its tap, added where the tap leads; and which cells were reached."""
        flat = weight.reshape(weight.shape[0], -1, weight.shape[-1])
        values: Any = 0.0
        reached: Any = 0.0
        for number, tap in enumerate(numbers.taps()):
            part = torch.einsum("bi...,oi->bo...", pair.values, flat[:, number])
            values = values + spread(part, tap, numbers.stride, grid)
            reached = reached + spread(pair.mask, tap, numbers.stride, grid)
        return values, (reached > 0).double()

    @rule(target=tensors, pair=tensors, out=CHANNELS, data=st.data(), bias=st.booleans())
    def inverse(self, pair: Pair, out: int, data: Any, bias: bool) -> Pair:
        if not pair.undo:
            pair = self.strided(pair, out, data, bias)
        if not pair.undo:
            return pair
        key = data.draw(st.sampled_from(sorted(pair.undo)))
        numbers, before = pair.undo[key]
        layer = getattr(spnn, f"SparseInverseConv{len(pair.grid)}d")(
            pair.channels, out, numbers.kernel, key, bias=bias
        )
        data_of = pair.sparse.indice_dict[key]
        if not torch.equal(data_of.out_indices, pair.sparse.indices) or (
            data_of.out_spatial_shape != pair.grid
        ):
            with pytest.raises(ValueError, match=f"indice_key '{key}'"):
                layer.double()(pair.sparse)
            return pair
        x, weight, shift = self.apply(layer, pair)
        values, _ = self.upward(pair, numbers, weight, before.shape[2:])
        assert torch.equal(x.indices, data_of.indices)
        return self.give(Pair(x, (values + shift) * before, before, pair.undo))

    @rule(target=tensors, pair=tensors, data=st.data(), kind=st.sampled_from(["Max", "Avg"]))
    def pool(self, pair: Pair, data: Any, kind: str) -> Pair:
        numbers, ndim = self.numbers(pair, data), len(pair.grid)
        if set(numbers.kernel) == {1}:
            numbers.padding = [0] * ndim
        grid, key = numbers.down(pair.grid), self.key()
        layer = getattr(spnn, f"Sparse{kind}Pool{ndim}d")(
            numbers.kernel, numbers.stride, numbers.padding, numbers.dilation, indice_key=key
        )
        if min(grid) < 1:
            with pytest.raises(ValueError, match="output grid must be at least 1"):
                layer(pair.sparse)
            return pair
        x = layer(pair.sparse)
        counts = gathered(pair.mask, numbers, grid)
        mask = (counts.sum(0) > 0).double()
        if kind == "Avg":
            values = gathered(pair.values * pair.mask, numbers, grid).sum(0)
            values = values / counts.sum(0).clamp(min=1)
        else:
            seen = torch.where(counts > 0, gathered(pair.values, numbers, grid), -torch.inf)
            seen = torch.where(mask > 0, seen, 0)
            winner = seen.argmax(0, keepdim=True)  # of equal values the lowest tap
            values = seen.gather(0, winner)[0]
        undo = {**pair.undo, key: (numbers, pair.mask)}
        return self.give(Pair(x, values * mask, mask, undo))

    @rule(target=tensors, pair=tensors, training=st.booleans(), act=st.sampled_from(["", "relu"]))
    def norm(self, pair: Pair, training: bool, act: str) -> Pair:
        rows = int(pair.mask.sum())
        hypothesis.assume(rows != 1 or not training)
        layer = spnn.SparseBatchNorm(pair.channels).double().train(training)
        with torch.no_grad():
            for value in (layer.weight, layer.bias, layer.running_mean):
                value.normal_()
        scale, shift = self.leaf(layer.weight), self.leaf(layer.bias)
        mean, variance = layer.running_mean.clone(), layer.running_var.clone()
        x = layer(pair.sparse)
        shape = (1, -1, *[1] * len(pair.grid))
        if training and rows:
            axes = [0, *range(2, pair.mask.ndim)]
            mean = (pair.values * pair.mask).sum(axes) / rows
            apart = (pair.values - mean.reshape(shape)) * pair.mask
            variance = apart.square().sum(axes) / rows
        plain = (pair.values - mean.reshape(shape)) / (variance.reshape(shape) + layer.eps).sqrt()
        values = plain * scale.reshape(shape) + shift.reshape(shape)
        if act:
            x, values = spnn.SparseReLU()(x), values.relu()
        return self.give(replace(pair, sparse=x, values=values * pair.mask))

    @rule(target=tensors, pair=tensors, share=st.sampled_from([0.7, 0.3, 1.0, 0.0]))
    def prune(self, pair: Pair, share: float) -> Pair:
        kept = torch.rand(pair.mask.shape) < share
        rows = kept[:, 0][pair.sparse.indices.long().unbind(1)]
        mask = pair.mask * kept
        x = pair.sparse.select_by_index(rows)
        return self.give(Pair(x, pair.values * mask, mask, {}))

    @rule(target=tensors, left=tensors, right=tensors, join=st.booleans())
    def skip(self, left: Pair, right: Pair, join: bool) -> Pair:
        """Sum or concatenation over the union of the sites."""
        hypothesis.assume(left.grid == right.grid)
        hypothesis.assume(join or left.channels == right.channels)
        hypothesis.assume(left.channels + right.channels <= 12)
        mask = torch.maximum(left.mask, right.mask)
        if join:
            x = cat(left.sparse, right.sparse)
            values = torch.cat([left.values, right.values], 1)
        else:
            x = add(left.sparse, right.sparse)
            values = left.values + right.values
        undo = left.undo if torch.equal(x.indices, left.sparse.indices) and join else {}
        undo = undo if x.indice_dict else {}
        return self.give(Pair(x, values, mask, undo))

    @invariant()
    def equal_sites_and_features(self) -> None:
        if self.last is None:
            return
        x, index = self.last.sparse, self.last.sparse.indices.long().unbind(1)
        assert x.spatial_shape == self.last.grid
        assert x.batch_size == self.last.mask.shape[0]
        found = torch.zeros_like(self.last.mask[:, 0])
        found[index] = 1
        assert torch.equal(found, self.last.mask[:, 0])
        assert len(x) == int(self.last.mask.sum())
        wanted = self.last.values.movedim(1, -1)[index]
        atol = 1e-10 * self.size(wanted)
        torch.testing.assert_close(x.features, wanted, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("examples", [120, pytest.param(2000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_random_networks(name: str, examples: int) -> None:
    if name != "reference" and (reason := _registry.load(name)) is not None:
        pytest.skip(f"{name}: {reason}")
    machine = type(f"Networks_{name}", (Networks,), {"backend": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=examples < 1000,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_the_twin_is_torchs_own_convolution() -> None:
    """The dense twin against `conv2d` and `conv_transpose2d`, so that it judges rightly."""
    torch.manual_seed(0)
    values = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    kernel = torch.randn(6, 3, 2, 2, dtype=torch.float64)
    numbers = Numbers([3, 2], [2, 1], [1, 0], [1, 2])
    grid = numbers.down([7, 6])
    mine = weighted(gathered(values, numbers, grid), kernel, 2)
    theirs = nn.functional.conv2d(
        values, kernel.movedim(-1, 1), None, (2, 1), (1, 0), (1, 2), groups=2
    )
    torch.testing.assert_close(mine, theirs)
    weight = torch.randn(5, 3, 2, 4, dtype=torch.float64)
    pair = Pair(None, values, torch.ones(2, 1, 7, 6, dtype=torch.float64), {})  # type: ignore[arg-type]
    up, _ = Networks.upward(pair, numbers, weight, numbers.up([7, 6]))
    dense = nn.functional.conv_transpose2d(
        values, weight.permute(3, 0, 1, 2), None, (2, 1), (1, 0), 0, 1, (1, 2)
    )
    torch.testing.assert_close(up, dense)
