"""One residual U-Net in the style of each peer: equal outputs once the weights are converted."""

from __future__ import annotations

from typing import Any

import oracle
import pytest
import torch
from torch import nn

import sparse3d.compat.minkowski as ME
import sparse3d.compat.spconv.pytorch as spconv
import sparse3d.compat.torchsparse.nn as spnn
import sparse3d.compat.torchsparse_1_4.nn as spnn_1_4
from sparse3d import checkpoint
from sparse3d.compat import torchsparse
from sparse3d.compat.flex_gemm.ops import spconv as flex_gemm

WIDTHS, SIDE = (6, 8, 12), 16


class SpconvBlock(spconv.SparseModule):
    def __init__(self, width: int, key: str) -> None:
        super().__init__()
        self.conv1 = spconv.SubMConv3d(width, width, 3, padding=1, bias=False, indice_key=key)
        self.norm1 = nn.BatchNorm1d(width)
        self.conv2 = spconv.SubMConv3d(width, width, 3, padding=1, bias=False, indice_key=key)
        self.norm2 = nn.BatchNorm1d(width)
        self.relu = nn.ReLU()

    def forward(self, x: Any) -> Any:
        out = self.conv1(x)
        out = out.replace_feature(self.relu(self.norm1(out.features)))
        out = self.conv2(out)
        out = out.replace_feature(self.norm2(out.features) + x.features)
        return out.replace_feature(self.relu(out.features))


class SpconvUNet(nn.Module):
    """Encoder and decoder of a shared `indice_key` a level."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = WIDTHS
        self.stem = spconv.SubMConv3d(4, a, 3, padding=1, bias=False, indice_key="s0")
        self.down1 = spconv.SparseConv3d(a, b, 2, 2, bias=False, indice_key="d1")
        self.block1 = SpconvBlock(b, "s1")
        self.down2 = spconv.SparseConv3d(b, c, 2, 2, bias=False, indice_key="d2")
        self.block2 = SpconvBlock(c, "s2")
        self.up2 = spconv.SparseInverseConv3d(c, b, 2, "d2", bias=False)
        self.mix1 = spconv.SubMConv3d(2 * b, b, 1, bias=False)
        self.block3 = SpconvBlock(b, "s1")
        self.up1 = spconv.SparseInverseConv3d(b, a, 2, "d1", bias=False)
        self.block4 = SpconvBlock(2 * a, "s0")
        self.head = spconv.SubMConv3d(2 * a, 5, 1, bias=True)

    def forward(self, x: Any) -> Any:
        fine = self.stem(x)
        middle = self.block1(self.down1(fine))
        y = self.up2(self.block2(self.down2(middle)))
        y = y.replace_feature(torch.cat([y.features, middle.features], 1))
        y = self.up1(self.block3(self.mix1(y)))
        y = y.replace_feature(torch.cat([y.features, fine.features], 1))
        return self.head(self.block4(y))


class MinkowskiBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = ME.MinkowskiConvolution(width, width, kernel_size=3, dimension=3)
        self.norm1 = ME.MinkowskiBatchNorm(width)
        self.conv2 = ME.MinkowskiConvolution(width, width, kernel_size=3, dimension=3)
        self.norm2 = ME.MinkowskiBatchNorm(width)
        self.relu = ME.MinkowskiReLU()

    def forward(self, x: Any) -> Any:
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out += x
        return self.relu(out)


class MinkowskiUNet(ME.MinkowskiNetwork):  # type: ignore[misc, name-defined]
    """Levels are tensor strides."""

    def __init__(self) -> None:
        super().__init__(3)
        a, b, c = WIDTHS
        conv, up = ME.MinkowskiConvolution, ME.MinkowskiConvolutionTranspose
        self.stem = conv(4, a, kernel_size=3, dimension=3)
        self.down1 = conv(a, b, kernel_size=2, stride=2, dimension=3)
        self.block1 = MinkowskiBlock(b)
        self.down2 = conv(b, c, kernel_size=2, stride=2, dimension=3)
        self.block2 = MinkowskiBlock(c)
        self.up2 = up(c, b, kernel_size=2, stride=2, dimension=3)
        self.mix1 = conv(2 * b, b, kernel_size=1, dimension=3)
        self.block3 = MinkowskiBlock(b)
        self.up1 = up(b, a, kernel_size=2, stride=2, dimension=3)
        self.block4 = MinkowskiBlock(2 * a)
        self.head = conv(2 * a, 5, kernel_size=1, bias=True, dimension=3)

    def forward(self, x: Any) -> Any:
        fine = self.stem(x)
        middle = self.block1(self.down1(fine))
        y = self.up2(self.block2(self.down2(middle)))
        y = self.up1(self.block3(self.mix1(ME.cat(y, middle))))
        assert y.tensor_stride == [1, 1, 1]
        return self.head(self.block4(ME.cat(y, fine)))


class TorchsparseBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = spnn.Conv3d(width, width, 3)
        self.norm1 = spnn.BatchNorm(width)
        self.conv2 = spnn.Conv3d(width, width, 3)
        self.norm2 = spnn.BatchNorm(width)
        self.relu = spnn.ReLU(True)

    def forward(self, x: Any) -> Any:
        return self.relu(self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x))))) + x)


class TorchsparseUNet(nn.Module):
    """Levels are strides of a shared cache."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = WIDTHS
        self.stem = spnn.Conv3d(4, a, 3)
        self.down1 = spnn.Conv3d(a, b, 2, stride=2)
        self.block1 = TorchsparseBlock(b)
        self.down2 = spnn.Conv3d(b, c, 2, stride=2)
        self.block2 = TorchsparseBlock(c)
        self.up2 = spnn.Conv3d(c, b, 2, stride=2, transposed=True)
        self.mix1 = spnn.Conv3d(2 * b, b, 1)
        self.block3 = TorchsparseBlock(b)
        self.up1 = spnn.Conv3d(b, a, 2, stride=2, transposed=True)
        self.block4 = TorchsparseBlock(2 * a)
        self.head = spnn.Conv3d(2 * a, 5, 1, bias=True)

    def forward(self, x: Any) -> Any:
        fine = self.stem(x)
        middle = self.block1(self.down1(fine))
        y = self.up2(self.block2(self.down2(middle)))
        y = self.up1(self.block3(self.mix1(torchsparse.cat([y, middle]))))
        return self.head(self.block4(torchsparse.cat([y, fine])))


def scene(batch: int = 2, rows: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    cells = torch.randperm(batch * SIDE**3)[:rows]
    digits = [cells // SIDE**power % SIDE for power in (2, 1, 0)]
    return torch.randn(rows, 4), torch.stack([cells // SIDE**3, *digits], 1).int()


def run(style: str, model: nn.Module, feats: torch.Tensor, coords: torch.Tensor) -> Any:
    """Features and coordinates (batch, *axes) of a model's output."""
    if style == "spconv":
        out = model(spconv.SparseConvTensor(feats, coords, [SIDE] * 3, 2))
        return out.features, out.indices
    if style == "minkowski":
        out = model(ME.SparseTensor(feats, coordinates=coords))
        return out.F, out.C
    out = model(torchsparse.SparseTensor(feats, coords))
    return out.feats, out.coords


MODELS: dict[str, type[nn.Module]] = {
    "spconv": SpconvUNet,
    "minkowski": MinkowskiUNet,
    "torchsparse": TorchsparseUNet,
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("source", MODELS)
def test_one_network_in_three_styles(source: str, training: bool) -> None:
    """Outputs <= 1e-5 apart, and input gradients <= 1e-4, whichever peer the weights are of."""
    feats, coords = scene()
    weights = MODELS[source]()
    for module in weights.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean)  # type: ignore[arg-type]
    results = {}
    for style, make in MODELS.items():
        model = make()
        report = checkpoint.load(model, weights.state_dict(), source=source)
        assert report.missing == report.unexpected == []
        model.train(training)
        leaf = feats.clone().requires_grad_()
        got, places = run(style, model, leaf, coords)
        rows = torch.from_numpy(oracle.match_rows(places.numpy(), coords.numpy()))
        (got[rows] * torch.linspace(-1, 1, 5)).sum().backward()
        results[style] = got[rows].detach(), leaf.grad
    for style, (got, gradient) in results.items():
        wanted, wanted_gradient = results[source]
        assert float((got - wanted).abs().max()) <= 1e-5, style
        assert gradient is not None
        assert wanted_gradient is not None
        assert float((gradient - wanted_gradient).abs().max()) <= 1e-4, style


def convolve(peer: str, size: int, stride: int, dilation: int) -> None:
    coords = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 5, 5]]).int()
    feats = torch.randn(3, 4)
    if peer == "spconv":
        spconv.SparseConv3d(4, 4, size, stride, 0, dilation)
    elif peer == "minkowski":
        layer = ME.MinkowskiConvolution(4, 4, size, stride, dilation, dimension=3)
        layer(ME.SparseTensor(feats, coords))
    elif peer == "torchsparse":
        spnn.Conv3d(4, 4, size, stride, dilation=dilation)
    elif peer == "torchsparse_1_4":
        spnn_1_4.Conv3d(4, 4, size, stride, dilation)
    else:
        weight, shape = torch.randn(4, *[max(size, 0)] * 3, 4), (1, 4, 9, 9, 9)
        flex_gemm.sparse_conv3d(feats, coords, shape, weight, stride=stride, dilation=dilation)


@pytest.mark.parametrize(
    "numbers",
    [(0, 1, 1), (3, 0, 1), (3, 1, 0), (2, 2, 0), (-1, 1, 1), (3, -2, 1), (3, 1, -1)],
)
@pytest.mark.parametrize("peer", ["spconv", "minkowski", "torchsparse", "torchsparse_1_4", "flex"])
def test_zeros_are_refused(peer: str, numbers: tuple[int, int, int]) -> None:
    """Code for another version hands its arguments over in another order: False for a dilation."""
    with pytest.raises(ValueError, match=r"must be (>|>=|\d integers >|at least) ?\d"):
        convolve(peer, *numbers)


@pytest.mark.parametrize("peer", ["spconv", "minkowski", "torchsparse"])
def test_pointwise_layers_keep_their_bytes_at_any_thread_count(peer: str) -> None:
    cells = torch.randint(0, 40, (30000, 4)) % torch.tensor([2, 40, 40, 40])
    coords, before = torch.unique(cells, dim=0).int(), torch.get_num_threads()
    feats = torch.randn(len(coords), 37)
    if peer == "spconv":
        layer: Any = spconv.SubMConv3d(37, 29, 1)
    elif peer == "minkowski":
        layer = ME.MinkowskiConvolution(37, 29, 1, bias=True, dimension=3)
    else:
        layer = spnn.Conv3d(37, 29, 1, bias=True)

    def run(threads: int) -> list[torch.Tensor]:
        torch.set_num_threads(threads)
        layer.zero_grad()
        leaf = feats.clone().requires_grad_()
        if peer == "spconv":
            out = layer(spconv.SparseConvTensor(leaf, coords, [40] * 3, 2)).features
        elif peer == "minkowski":
            out = layer(ME.SparseTensor(leaf, coords)).F
        else:
            out = layer(torchsparse.SparseTensor(leaf, coords)).feats
        out.square().sum().backward()
        weight = next(p for p in layer.parameters() if p.ndim > 1 and p.shape[-2:] != (1, 29))
        return [out.detach(), leaf.grad, weight.grad]

    try:
        single = run(1)
        for threads in (2, 3, 8):
            assert all(torch.equal(a, b) for a, b in zip(single, run(threads), strict=True))
    finally:
        torch.set_num_threads(before)
