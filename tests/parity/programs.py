"""Random programs of layers in spconv's style, run alike by spconv and by its stand-in; imports
neither.

A program keeps spconv's habits in it: shared keys, inverse layers, pools after pools (equal
maxima), tables, assigned and edited indices, sums over unions. Rows are distinct: which of two at
one place a submanifold layer meets is the peer's accident.
"""

from __future__ import annotations

import importlib
import random
from typing import Any

import torch
from torch import nn

Steps = list[tuple[str, torch.Tensor, torch.Tensor, list[int]]]
KINDS = (
    *("subm", "strided", "pool", "transposed", "pointwise", "shared", "double", "edited"),
    *("assigned", "moved", "table", "joined", "union", "normed", "inverse", "inverse", "inverse"),
)


class Program:
    """One program; `steps` holds (kind, sites, features, grid) of every step that made rows."""

    def __init__(self, spconv: Any, seed: int) -> None:
        self.spconv = spconv
        self.draw, self.numbers = random.Random(seed), torch.Generator().manual_seed(seed)
        self.axes = self.draw.choice([1, 2, 3, 3])
        shape = [self.draw.randint(6, 12) for _ in range(self.axes)]
        batch, channels = self.draw.randint(1, 3), self.draw.choice([1, 2, 5])
        grid = [batch, *shape]
        cells = torch.randperm(int(torch.tensor(grid).prod()), generator=self.numbers)
        count = self.draw.randint(1, min(len(cells), 200))
        places = torch.stack(torch.unravel_index(cells[:count], grid), 1)
        self.leaf = torch.randn(count, channels, generator=self.numbers).requires_grad_()
        indices = places.int().contiguous()
        self.x = spconv.SparseConvTensor(self.leaf, indices, shape, batch)
        self.open: list[tuple[str, list[int]]] = []
        self.parameters: list[nn.Parameter] = []
        self.steps: Steps = []

    def pick(self, *choices: int) -> list[int]:
        return [self.draw.choice(choices) for _ in range(self.axes)]

    def layer(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        """A layer over the program's axes with numbers of its own."""
        made = getattr(self.spconv, f"{kind}{self.axes}d")(*args, **kwargs)
        for parameter in made.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=self.numbers) * 0.3)
        self.parameters += made.parameters()
        return made

    def run(self) -> None:
        for place in range(self.draw.randint(2, 7)):
            kind = self.draw.choice(KINDS)
            made = self.step(kind, place)
            if made is None:
                continue
            if min(made.spatial_shape) < 1 or len(made.features) == 0:
                break
            self.x = made
            self.steps.append(
                (kind, made.indices.clone(), made.features.detach(), list(made.spatial_shape))
            )
        rows = self.x.features
        loss = (rows * torch.linspace(-1, 1, rows.shape[1])).sum() + rows.square().sum() * 0.1
        loss.backward()

    def step(self, kind: str, place: int) -> Any:
        x, channels, out = self.x, self.x.features.shape[1], self.draw.choice([1, 3, 4])
        bias, key = self.draw.random() < 0.5, f"k{place}"
        if kind == "subm":
            numbers = {"dilation": self.pick(1, 1, 2), "padding": 1, "bias": bias}
            return self.layer("SubMConv", channels, out, self.pick(1, 3, 3, 5), **numbers)(x)
        if kind in ("strided", "pool"):
            size, stride = self.pick(2, 3), self.pick(1, 2)
            padding = self.pick(0, 1)
            self.open.append((key, size))
            if kind == "pool":
                return self.layer("SparseMaxPool", size, stride, padding, indice_key=key)(x)
            numbers = {"dilation": self.pick(1, 2), "bias": bias, "indice_key": key}
            return self.layer("SparseConv", channels, out, size, stride, padding, **numbers)(x)
        if kind == "inverse":
            if not self.open:
                return None
            key, size = self.open.pop()
            return self.layer("SparseInverseConv", channels, out, size, key, bias=bias)(x)
        if kind == "pointwise":
            return self.layer("SparseConv", channels, out, 1, bias=bias)(x)
        if kind == "shared":
            first = self.layer("SubMConv", channels, 3, 3, bias=False, indice_key=key)
            return self.layer("SubMConv", 3, 2, 3, bias=True, indice_key=key)(first(x))
        if kind == "double":
            return x.replace_feature(torch.cat([x.features, x.features * 2], 1))
        if kind == "normed":
            norm = nn.BatchNorm1d(3).train(len(x.features) > 1)
            conv = self.layer("SubMConv", channels, 3, 3, bias=False)
            return self.spconv.SparseSequential(conv, norm, nn.ReLU())(x)
        return self.beside(kind, channels, key)

    def beside(self, kind: str, channels: int, key: str) -> Any:
        """Steps after which no strided layer can be undone, and those of two branches."""
        x, spconv = self.x, self.spconv
        if kind in ("table", "joined"):
            table = spconv.ConcatTable()
            table.add(self.layer("SubMConv", channels, 3, 3, bias=False))
            table.add(self.layer("SubMConv", channels, 3, 1, bias=True))
            end = spconv.AddTable() if kind == "table" else spconv.JoinTable()
            return spconv.SparseSequential(table, end)(x)
        self.open.clear()
        if kind == "transposed":
            numbers = (self.pick(2, 3), self.pick(1, 2), self.pick(0, 1))
            return self.layer("SparseConvTranspose", channels, 2, *numbers)(x)
        if kind == "union":
            other = self.layer("SparseConv", channels, channels, 3, 1, 1, bias=False)(x)
            functional = importlib.import_module(f"{spconv.__name__}.functional")
            return functional.sparse_add(x, other)
        axis = self.draw.randrange(self.axes) + 1
        made = x.replace_feature(x.features)
        if kind == "moved":  # the layer after the edit finds its key
            made = self.layer("SubMConv", channels, channels, 3, bias=False, indice_key=key)(x)
            kind = self.draw.choice(["assigned", "edited"])
        turned = x.indices.clone()
        turned[:, axis] = x.spatial_shape[axis - 1] - 1 - turned[:, axis]
        if kind == "assigned":
            made.indices = turned
        else:
            made.indices = x.indices.clone() if key not in made.indice_dict else made.indices
            made.indices[:, axis] = turned[:, axis]
        return self.layer("SubMConv", channels, 2, 3, bias=False, indice_key=key)(made)


def solve(spconv: Any, seed: int) -> dict[str, Any]:
    """Steps, gradients and a failure's words of one program."""
    program = Program(spconv, seed)
    failure = ""
    try:
        program.run()
    except (RuntimeError, ValueError, AssertionError) as error:
        failure = str(error)
    gradients = [program.leaf.grad, *(parameter.grad for parameter in program.parameters)]
    return {"steps": program.steps, "gradients": gradients, "failure": failure}
