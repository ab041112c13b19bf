"""MinkUNet42 in the words that sparse3d and spconv share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

ENCODER, DECODER, STEM = (32, 64, 128, 256), (256, 128, 96, 96), 32


def network(sp: Any) -> nn.Module:
    """The network over `sparse3d.nn` or `spconv.pytorch`, weights from one seed.

    Where the two differ, each has what its users write: our batch norm, and a residual that the
    container adds before its last activation.
    """
    ours = sp.__name__ == "sparse3d.nn"
    norm = sp.SparseBatchNorm if ours else nn.BatchNorm1d

    def unit(conv: nn.Module, width: int, relu: bool = True) -> list[nn.Module]:
        return [conv, norm(width), *([nn.ReLU(inplace=True)] if relu else [])]

    def subm(a: int, b: int, key: str, size: int = 3) -> nn.Module:
        return sp.SubMConv3d(a, b, size, bias=False, indice_key=f"{key}k{size}")

    class Block(nn.Module):
        def __init__(self, a: int, b: int, key: str) -> None:
            super().__init__()
            self.net = sp.SparseSequential(
                *unit(subm(a, b, key), b), *unit(subm(b, b, key), b, relu=ours)
            )
            one = unit(subm(a, b, key, 1), b, relu=False)
            self.skip = sp.SparseSequential(*one) if a != b else None

        def forward(self, x: Any) -> Any:
            side = x if self.skip is None else self.skip(x)
            if ours:
                return self.net(x, add_input=side)
            y = self.net(x)
            return y.replace_feature(torch.relu(y.features + side.features))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = sp.SparseSequential(
                *unit(subm(4, STEM, "l0"), STEM), *unit(subm(STEM, STEM, "l0"), STEM)
            )
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            self.left, self.right = nn.ModuleList(), nn.ModuleList()
            width, skips = STEM, [STEM]
            for i, out in enumerate(ENCODER):
                down = sp.SparseConv3d(width, width, 2, 2, bias=False, indice_key=f"d{i}")
                self.down.append(sp.SparseSequential(*unit(down, width)))
                key = f"l{i + 1}"
                self.left.append(nn.Sequential(Block(width, out, key), Block(out, out, key)))
                width = out
                skips.append(out)
            for i, out in enumerate(DECODER):
                up = sp.SparseInverseConv3d(width, out, 2, f"d{3 - i}", bias=False)
                self.up.append(sp.SparseSequential(*unit(up, out)))
                key, joined = f"l{3 - i}", out + skips[3 - i]
                self.right.append(nn.Sequential(Block(joined, out, key), Block(out, out, key)))
                width = out
            self.head = nn.Linear(width, 19)

        def forward(self, x: Any) -> torch.Tensor:
            kept = [self.stem(x)]
            for down, blocks in zip(self.down, self.left, strict=True):
                kept.append(blocks(down(kept[-1])))
            y = kept.pop()
            for up, blocks in zip(self.up, self.right, strict=True):
                y = up(y)
                y = blocks(y.replace_feature(torch.cat([y.features, kept.pop().features], 1)))
            return self.head(y.features)

    torch.manual_seed(0)
    return Net()


def gigaflops(net: nn.Module, x: Any) -> float:
    """Of a forward pass of ours: two operations a pair and product of channels."""
    from sparse3d.nn import SparseConvolution

    total = 2e-9 * len(x.features) * 96 * 19

    def count(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal total
        pairs = layer._map(inputs[0], inputs[0].sites(""))[0]
        total += 2e-9 * len(pairs) * layer.in_channels * layer.out_channels

    layers = [m for m in net.modules() if isinstance(m, SparseConvolution)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return total
