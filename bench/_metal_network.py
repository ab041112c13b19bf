"""Every convolution of MinkUNet42 on a scan, forward and backward, by the model of _metal_cost.py.

The network of `_minkunet.py` runs once on the CPU, with hooks that keep each layer's kernel map;
plans are made by the Metal kernels in the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import metal_emu
import torch
from _metal_cost import (
    DTYPES,
    Cost,
    Layer,
    bound_bytes,
    by_taps,
    few_channels,
    finish,
    listed_counts,
    predicted,
    weight_gradient,
)
from _minkunet import network

import sparse3d
import sparse3d.nn as spnn
from sparse3d import _registry
from sparse3d.kernel_map import KernelMap
from sparse3d.metal import conv
from sparse3d.metal._plan import Plan

DIRECTIONS = ("forward", "input gradient", "weight gradient")
KERNELS = {
    "tiles": {"sp_conv"},
    "few channels": {"sp_conv_small"},
    "taps": {"sp_conv_tap", "sp_conv_finish"},
    "rows": {"sp_conv_finish"},
    "chunks": {"sp_weight_grad", "sp_weight_grad_small", "sp_weight_grad_sum"},
}
"""What runs under each word of the table."""


@dataclass
class Convolution:
    """Layers of a network that are alike: one map, the same channels. No map: rows as they are.
    `plans` are those of the sums into outputs and into inputs."""

    name: str
    pairs: KernelMap | None
    rows: int
    cin: int
    cout: int
    count: int = 1
    plans: tuple[Plan, ...] = ()

    @property
    def num_pairs(self) -> int:
        return self.rows if self.pairs is None else len(self.pairs)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows in, rows out, taps."""
        if self.pairs is None:
            return self.rows, self.rows, 1
        return self.pairs.num_in, self.pairs.num_out, self.pairs.num_taps

    @property
    def useful(self) -> int:
        """Multiply-accumulates."""
        return self.num_pairs * self.cin * self.cout

    def bound(self, size: int) -> int:
        """Bytes of every operand and pair once; the same in every direction."""
        num_in, num_out, taps = self.sizes
        shape = Layer(self.cin, self.cout, size)
        return bound_bytes(self.num_pairs, num_in, num_out, taps, shape)

    def cost(self, direction: str, size: int) -> tuple[str, Cost]:
        """The kernels that run, and what they move and multiply."""
        layer, backward = Layer(self.cin, self.cout, size), direction == "input gradient"
        num_in, num_out, _ = self.sizes
        if direction == "weight gradient":
            splits = [0, self.rows] if self.pairs is None else self.pairs.splits.tolist()
            return "chunks", weight_gradient(torch.tensor(splits).numpy(), layer)
        if self.pairs is None:
            return "rows", finish(num_out, True, 0, layer.swapped if backward else layer)
        count, shape = (num_in, layer.swapped) if backward else (num_out, layer)
        return sums(self.plans[backward], self.pairs, count, shape)


def sums(plan: Plan, pairs: KernelMap, count: int, layer: Layer) -> tuple[str, Cost]:
    """Into `count` rows, in the dataflow that the launch code chooses."""
    form = conv._Layer(layer.cin, layer.cout, pairs.num_taps, 1, False)
    if form.small:
        return "few channels", few_channels(plan, count, layer)
    out = torch.empty((count, layer.cout), dtype=DTYPES[layer.size], device="meta")
    flow = conv._choose(plan, pairs.splits, form, out)
    if flow == "taps":
        return flow, by_taps(pairs.splits.numpy(), count, plan.mirrored, layer)
    return flow, predicted(listed_counts(plan, pairs.num_taps, layer.tile_rows), count, layer)


def convolutions(voxels: torch.Tensor) -> list[Convolution]:
    """Those of MinkUNet42 on (0, z, y, x), in the order of the network; the class scores' product
    is the last. Plans are made."""
    found: dict[tuple[Any, ...], Convolution] = {}
    levels: dict[int, int] = {}

    def keep(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x = inputs[0]
        rows = len(x) if isinstance(x, torch.Tensor) else len(x.features)
        level = levels.setdefault(rows, len(levels))
        if isinstance(layer, torch.nn.Linear):
            pairs, name, shape = None, "head", (layer.in_features, layer.out_features)
        else:
            shape = (layer.in_channels, layer.out_channels)
            pairs = layer._map(x, x.sites(""))[0]
            kind = "x".join(map(str, layer.kernel_size))
            step = " inverse" if layer.inverse else "" if layer.subm else " strided"
            name = f"level {level} {kind}{step}"
        key = (name, rows, *shape)
        if key in found:
            found[key].count += 1
        else:
            found[key] = Convolution(name, pairs, rows, *shape)

    net = network(spnn).eval()
    kinds = (spnn.SparseConvolution, torch.nn.Linear)
    for module in net.modules():
        if isinstance(module, kinds):
            module.register_forward_hook(keep)
    sites = voxels.clone()
    sites[:, 1:] -= sites[:, 1:].min(0).values
    shape = [int(n) + 1 for n in sites[:, 1:].max(0).values]
    x = sparse3d.SparseConvTensor(torch.ones(len(sites), 4), sites, shape, 1)
    with torch.no_grad():
        net(x)
    return [planned(one) for one in found.values()]


def planned(one: Convolution) -> Convolution:
    """The layers with the plans of their map."""
    if one.pairs is not None:
        with metal_emu.installed(check=False), _registry.force("metal"):
            one.plans = Plan(*one.pairs.plan()), Plan(*one.pairs.grad_plan())
    return one


def records(voxels: torch.Tensor) -> Iterator[tuple[dict[str, Any], Convolution, Cost]]:
    """Flat rows of the table, a layer in a dtype, its directions side by side; the layer, and the
    cost of its forward pass."""
    layers = convolutions(voxels)
    for size, dtype in ((4, "float32"), (2, "float16")):
        for one in layers:
            num_in, num_out, _ = one.sizes
            flops = 2 * one.useful
            row: dict[str, Any] = {
                "dtype": dtype,
                "layer": one.name,
                "channels": f"{one.cin}->{one.cout}",
                "alike": one.count,
                "rows in": num_in,
                "rows out": num_out,
                "pairs": one.num_pairs,
                "bound": round(flops / one.bound(size), 1),
            }
            costs = [one.cost(direction, size) for direction in DIRECTIONS]
            for short, (kernels, cost) in zip(("", "dx ", "dw "), costs, strict=True):
                row[f"{short}by"] = kernels
                row[f"{short}MB"] = round(cost.total / 1e6, 2)
                row[f"{short}flop/B"] = round(flops / cost.total, 1)
                row[f"{short}issued"] = round(cost.macs / one.useful, 2)
            yield row, one, costs[0][1]
