"""The networks run, train and take small scenes, and equal code in the peers' style."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracle
import pytest
import torch
from torch import nn

import sparse3d.compat.minkowski as ME
import sparse3d.compat.spconv.pytorch as spconv
import sparse3d.compat.torchsparse_1_4 as ts
import sparse3d.compat.torchsparse_1_4.nn as ts_nn
from sparse3d import SparseConvTensor, checkpoint
from sparse3d.compat.minkowski.modules.resnet_block import BasicBlock
from sparse3d.models.minkowski_nets import (
    RESNETS,
    UNETS,
    MinkowskiFieldNet,
    MinkowskiResNet,
    MinkowskiUNet,
)
from sparse3d.models.minkunet import scaled_widths
from sparse3d.models.part_unet import UNetV2
from sparse3d.models.pillar_backbone import PillarBackBone8x, PillarRes18BackBone8x
from sparse3d.models.spunet import SpUNet
from sparse3d.models.spvcnn import SPVCNN
from sparse3d.models.voxel_backbone import (
    SparseEncoder,
    VoxelBackBone8x,
    VoxelNeXt,
    VoxelResBackBone8x,
)

GRID = (41, 32, 32)
NARROW = (8, 8, 12, 16, 16, 12, 8, 8)


def scene(rows: int, grid: Any = GRID, batch: int = 2) -> SparseConvTensor:
    cells = torch.randperm(batch * grid[0] * grid[1] * grid[2])[:rows]
    places = [cells // (grid[1] * grid[2]) % grid[0], cells // grid[2] % grid[1], cells % grid[2]]
    sample = cells // (grid[0] * grid[1] * grid[2])
    coords = torch.stack([sample, *places], 1).int()
    return SparseConvTensor(torch.randn(rows, 4), coords, grid, batch)


def last(out: Any) -> torch.Tensor:
    if isinstance(out, dict):  # both ends of a network with two
        out = out["points"].features.sum() + out["out"].features if "points" in out else out["out"]
    return out.features if isinstance(out, SparseConvTensor) else out


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "SpUNet": lambda: SpUNet(4, 5, 8, NARROW, (1, 2, 1, 1, 1, 1, 1, 1)),
    "SpUNet features": lambda: SpUNet(4, 0, 8, NARROW, (1,) * 8),
    "VoxelBackBone8x": lambda: VoxelBackBone8x(4),
    "VoxelResBackBone8x": lambda: VoxelResBackBone8x(4, use_bias=False),
    "VoxelNeXt": lambda: VoxelNeXt(4, (8, 8, 12, 16, 16), 16),
    "SECOND": lambda: SparseEncoder(4),
    "SECOND blocks": lambda: SparseEncoder(
        4,
        encoder_channels=((16, 16, 32), (32, 32, 64), (64, 64, 64), (64, 64)),
        encoder_paddings=((0, 0, 1), (0, 0, 1), (0, 0, (0, 1, 1)), (0, 0)),
        block_type="basicblock",
    ),
    "UNetV2": lambda: UNetV2(4),
    "SPVCNN": lambda: SPVCNN(4, 5, 0.25),
    "MinkUNet14": lambda: MinkowskiUNet(4, 5, NARROW, "basic", (1,) * 8, 8),
    "MinkUNet50": lambda: MinkowskiUNet(4, 5, NARROW, "bottleneck", (1,) * 8, 8),
    "ResNet14": lambda: MinkowskiResNet(4, 5, "basic", (1,) * 4, NARROW[:4], 8),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [600, 1, 0])
def test_networks_train_and_take_small_scenes(name: str, rows: int) -> None:
    model = NETWORKS[name]()
    model.train(rows > 1)
    x = scene(rows, batch=1 if rows == 1 else 2)
    leaf = x.features.requires_grad_()
    out = last(model(x.replace_feature(leaf)))
    assert torch.isfinite(out).all()
    if rows > 1:
        out.square().sum().backward()
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
        silent = [n for n, p in model.named_parameters() if p.grad is None]
        assert silent == []
    if name.startswith("SECOND"):
        assert out.shape == (x.batch_size, 256, 4, 4)
    elif out.ndim == 2 and name in ("SpUNet", "SPVCNN", "MinkUNet14", "MinkUNet50"):
        assert out.shape == (rows, 5)


PUBLISHED = {
    "MinkUNet14": ("basic", "1 1 1 1 1 1 1 1", "32 64 128 256 256 128 96 96"),
    "MinkUNet14A": ("basic", "1 1 1 1 1 1 1 1", "32 64 128 256 128 128 96 96"),
    "MinkUNet14B": ("basic", "1 1 1 1 1 1 1 1", "32 64 128 256 128 128 128 128"),
    "MinkUNet14C": ("basic", "1 1 1 1 1 1 1 1", "32 64 128 256 192 192 128 128"),
    "MinkUNet14D": ("basic", "1 1 1 1 1 1 1 1", "32 64 128 256 384 384 384 384"),
    "MinkUNet18": ("basic", "2 2 2 2 2 2 2 2", "32 64 128 256 256 128 96 96"),
    "MinkUNet18A": ("basic", "2 2 2 2 2 2 2 2", "32 64 128 256 128 128 96 96"),
    "MinkUNet18B": ("basic", "2 2 2 2 2 2 2 2", "32 64 128 256 128 128 128 128"),
    "MinkUNet18D": ("basic", "2 2 2 2 2 2 2 2", "32 64 128 256 384 384 384 384"),
    "MinkUNet34": ("basic", "2 3 4 6 2 2 2 2", "32 64 128 256 256 128 96 96"),
    "MinkUNet34A": ("basic", "2 3 4 6 2 2 2 2", "32 64 128 256 256 128 64 64"),
    "MinkUNet34B": ("basic", "2 3 4 6 2 2 2 2", "32 64 128 256 256 128 64 32"),
    "MinkUNet34C": ("basic", "2 3 4 6 2 2 2 2", "32 64 128 256 256 128 96 96"),
    "MinkUNet50": ("bottleneck", "2 3 4 6 2 2 2 2", "32 64 128 256 256 128 96 96"),
    "MinkUNet101": ("bottleneck", "2 3 4 23 2 2 2 2", "32 64 128 256 256 128 96 96"),
}
"""Block, layers and planes of MinkowskiEngine 0.5's examples."""


def test_published_widths_and_depths() -> None:
    ours = {
        name: (network["block"], *(" ".join(map(str, network[k])) for k in ("layers", "planes")))
        for name, network in UNETS.items()
    }
    assert ours == PUBLISHED


def test_published_names() -> None:
    with torch.device("meta"):
        for name in UNETS:
            MinkowskiUNet.named(name, 3, 20)
        for name in RESNETS:
            MinkowskiResNet.named(name, 3, 20)
        big = MinkowskiUNet.named("MinkUNet34C", 3, 20)
    assert round(sum(p.numel() for p in big.parameters()) / 1e6, 1) == 37.9
    with pytest.raises(ValueError, match=r"name must be one of .* got 'MinkUNet9'"):
        MinkowskiUNet.named("MinkUNet9", 3, 20)
    with pytest.raises(ValueError, match=r"name must be one of .* got 'ResNet9'"):
        MinkowskiResNet.named("ResNet9", 3, 20)
    with pytest.raises(ValueError, match="block_type must be 'conv_module' or 'basicblock', got"):
        SparseEncoder(4, block_type="plain")
    with pytest.raises(ValueError, match="must have the same even length, got 3 and 4"):
        SpUNet(4, 5, 8, (8,) * 3, (1,) * 4)


# ------------------------------------------------------------------ in MinkowskiEngine's style


def me_layer(inplanes: int, planes: int, stride: int = 1) -> nn.Sequential:
    shortcut = None
    if stride != 1 or inplanes != planes:
        conv = ME.MinkowskiConvolution(inplanes, planes, 1, stride, dimension=3)
        shortcut = nn.Sequential(conv, ME.MinkowskiBatchNorm(planes))
    return nn.Sequential(BasicBlock(inplanes, planes, stride, 1, shortcut, dimension=3))


class PeerUNet(nn.Module):
    def __init__(self, widths: Any, init: int) -> None:
        super().__init__()
        conv, norm = ME.MinkowskiConvolution, ME.MinkowskiBatchNorm
        self.conv0p1s1 = conv(4, init, 5, dimension=3)
        self.bn0 = norm(init)
        width, skips = init, [init, *widths[:3]]
        for i in range(4):
            self.add_module(f"conv{i + 1}p{2**i}s2", conv(width, width, 2, 2, dimension=3))
            self.add_module(f"bn{i + 1}", norm(width))
            self.add_module(f"block{i + 1}", me_layer(width, widths[i]))
            width = widths[i]
        for i in range(4, 8):
            up = ME.MinkowskiConvolutionTranspose(width, widths[i], 2, 2, dimension=3)
            self.add_module(f"convtr{i}p{2 ** (8 - i)}s2", up)
            self.add_module(f"bntr{i}", norm(widths[i]))
            self.add_module(f"block{i + 1}", me_layer(widths[i] + skips[7 - i], widths[i]))
            width = widths[i]
        self.final = conv(width, 5, 1, bias=True, dimension=3)
        self.relu = ME.MinkowskiReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        at = self.get_submodule
        y = self.relu(self.bn0(self.conv0p1s1(x)))
        kept = [y]
        for i in range(4):
            y = self.relu(at(f"bn{i + 1}")(at(f"conv{i + 1}p{2**i}s2")(y)))
            y = at(f"block{i + 1}")(y)
            kept.append(y)
        for i in range(4, 8):
            y = self.relu(at(f"bntr{i}")(at(f"convtr{i}p{2 ** (8 - i)}s2")(y)))
            y = at(f"block{i + 1}")(ME.cat(y, kept[7 - i]))
        return self.final(y)


class PeerResNet(nn.Module):
    def __init__(self, widths: Any, init: int, inner: int = 4) -> None:
        super().__init__()
        conv = ME.MinkowskiConvolution
        self.conv1 = nn.Sequential(
            conv(inner, init, 3, 2, dimension=3),
            ME.MinkowskiInstanceNorm(init),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiMaxPooling(kernel_size=2, stride=2, dimension=3),
        )
        width = init
        for i, planes in enumerate(widths, 1):
            self.add_module(f"layer{i}", me_layer(width, planes, 2))
            width = planes
        self.conv5 = nn.Sequential(
            ME.MinkowskiDropout(),
            conv(width, width, 3, 3, dimension=3),
            ME.MinkowskiInstanceNorm(width),
            ME.MinkowskiGELU(),
        )
        self.glob_pool = ME.MinkowskiGlobalMaxPooling()
        self.final = ME.MinkowskiLinear(width, 5, bias=True)

    def forward(self, x: Any) -> Any:
        y = self.conv1(x)
        for i in range(1, 5):
            y = self.get_submodule(f"layer{i}")(y)
        return self.final(self.glob_pool(self.conv5(y)))


def shaken(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]


def test_the_peers_network_has_the_recorded_keys(shared: Path) -> None:
    file = shared / "contracts" / "state-dict-keys.json"
    keys = json.loads(file.read_text())["models"]["pointcept_minkunet_me"]["keys"]
    mine = {name: list(value.shape) for name, value in PeerUNet(NARROW, 8).state_dict().items()}
    del keys["final.kernel"], keys["final.bias"], mine["final.kernel"], mine["final.bias"]
    assert mine == keys


@pytest.mark.parametrize("negative", [False, True])
def test_mink_unet_equals_the_peers(negative: bool) -> None:
    theirs, ours = PeerUNet(NARROW, 8), NETWORKS["MinkUNet14"]()
    shaken(theirs)
    checkpoint.load(ours, theirs.state_dict())
    theirs.eval(), ours.eval()
    x = scene(700)
    coords = x.indices - torch.tensor([0, 20, 9, 3] if negative else [0] * 4).int()
    wanted = theirs(ME.SparseTensor(x.features, coords))
    grid = None if negative else GRID
    got = ours(SparseConvTensor(x.features, coords, grid, 2))
    rows = torch.from_numpy(oracle.match_rows(got.indices.numpy(), wanted.C.numpy()))
    torch.testing.assert_close(got.features[rows], wanted.F, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("negative", [False, True])
def test_mink_res_net_equals_the_peers(negative: bool) -> None:
    theirs, ours = PeerResNet(NARROW[:4], 8), NETWORKS["ResNet14"]()
    shaken(theirs)
    checkpoint.load(ours, theirs.state_dict())
    theirs.eval(), ours.eval()
    x = scene(700, (64, 64, 64))
    coords = x.indices - torch.tensor([0, 40, 9, 3] if negative else [0] * 4).int()
    wanted = theirs(ME.SparseTensor(x.features, coords))
    got = ours(SparseConvTensor(x.features, coords, None if negative else (64,) * 3, 2))
    rows = wanted.C[:, 0].long()
    torch.testing.assert_close(got[rows], wanted.F, rtol=1e-5, atol=1e-5)


class PeerFieldNet(PeerResNet):
    def __init__(self, widths: Any, init: int) -> None:
        super().__init__(widths, init, 64)
        self.field_network = self.points(3, 32)
        self.field_network2 = self.points(32 + 3, 64)

    @staticmethod
    def points(inner: int, outer: int) -> nn.Sequential:
        return nn.Sequential(
            ME.MinkowskiSinusoidal(inner, outer),
            ME.MinkowskiBatchNorm(outer),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiLinear(outer, outer),
            ME.MinkowskiBatchNorm(outer),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiToSparseTensor(),
        )

    def forward(self, x: Any) -> Any:
        return super().forward(self.field_network2(self.field_network(x).cat_slice(x)))


@pytest.mark.parametrize("training", [True, False])
def test_field_net_equals_the_peers(training: bool) -> None:
    theirs = PeerFieldNet(NARROW[:4], 8)
    ours = MinkowskiFieldNet(3, 5, "basic", (1,) * 4, NARROW[:4], 8)
    shaken(theirs)
    report = checkpoint.load(ours, theirs.state_dict())
    assert report.missing == report.unexpected == []
    for model in (theirs, ours):
        model.train(training)
        for module in model.modules():
            if isinstance(module, (nn.Dropout, ME.MinkowskiDropout)):
                module.eval()
    points = torch.cat([torch.randint(0, 2, (900, 1)), torch.randn(900, 3) * 20], 1)
    features = torch.randn(900, 3, requires_grad=True)
    wanted = theirs(ME.TensorField(features, points))
    got = ours(features, points)
    torch.testing.assert_close(got[wanted.C[:, 0].long()], wanted.F, rtol=1e-4, atol=1e-4)
    got.square().sum().backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())
    assert bool(features.grad.isfinite().all())  # type: ignore[union-attr]


def test_field_net_takes_no_points() -> None:
    ours = MinkowskiFieldNet(3, 5, "basic", (1,) * 4, NARROW[:4], 8).eval()
    assert ours(torch.zeros(0, 3), torch.zeros(0, 4)).shape == (1, 5)


# ---------------------------------------------------------------------------- in spconv's style


@pytest.mark.parametrize("training", [True, False])
def test_unet_v2_equals_code_that_keeps_its_features_apart(training: bool) -> None:
    """The way up as code for spconv writes it, over the network's own layers."""
    net = NETWORKS["UNetV2"]().train(training)
    shaken(net)
    x = scene(900)
    got = net(x)
    y = got["x_conv4"]
    at = net.get_submodule
    for level in (4, 3, 2, 1):
        side = at(f"conv_up_t{level}")(got[f"x_conv{level}"])
        both = torch.cat((y.features, side.features), dim=1)
        merged = at(f"conv_up_m{level}")(side.replace_feature(both))
        rows, width = both.shape
        folded = both.view(rows, width // 2, -1).sum(dim=2)
        y = side.replace_feature(merged.features + folded)
        y = (at(f"inv_conv{level}") if level > 1 else at("conv5"))(y)
    assert torch.equal(got["points"].indices, x.indices)
    torch.testing.assert_close(got["points"].features, y.features, rtol=1e-5, atol=1e-5)
    assert list(got["out"].spatial_shape) == [2, 4, 4]
    bare = UNetV2(4, encoded=False)
    assert "out" not in bare(x)
    assert not [name for name in bare.state_dict() if name.startswith("conv_out")]


@pytest.mark.parametrize("kind", [PillarBackBone8x, PillarRes18BackBone8x])
@pytest.mark.parametrize("rows", [300, 1, 0])
def test_pillars_train_and_take_small_scenes(kind: Any, rows: int) -> None:
    net = kind().train(rows > 1)
    cells = torch.randperm(2 * 48 * 40)[:rows]
    indices = torch.stack([cells // 1920, cells // 40 % 48, cells % 40], 1).int()
    features = torch.randn(rows, 32, requires_grad=True)
    levels = net(SparseConvTensor(features, indices, (48, 40), 2))
    assert levels["x_conv4"].shape == (2, 256, 6, 5)
    assert levels["x_conv5"].shape == (2, 256, 3, 3)
    assert bool(levels["x_conv5"].isfinite().all())
    if rows > 1:
        levels["x_conv5"].square().sum().backward()
        assert [n for n, p in net.named_parameters() if p.grad is None] == []
        assert bool(features.grad.isfinite().all())  # type: ignore[union-attr]


class PeerVoxelNeXt(nn.Module):
    """Its last part as code for spconv writes it: indices edited in place, sites joined after."""

    def __init__(self, net: VoxelNeXt) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        y = self.net.conv1(self.net.conv_input(x))
        levels = []
        for level in range(2, 7):
            y = self.net.get_submodule(f"conv{level}")(y)
            levels.append(y)
        x4, x5, x6 = levels[2:]
        x5.indices[:, 1:] *= 2
        x6.indices[:, 1:] *= 4
        x4 = x4.replace_feature(torch.cat([x4.features, x5.features, x6.features]))
        x4.indices = torch.cat([x4.indices, x5.indices, x6.indices])
        flat, inverse = torch.unique(x4.indices[:, [0, 2, 3]], dim=0, return_inverse=True)
        features = x4.features.new_zeros((flat.shape[0], x4.features.shape[1]))
        features.index_add_(0, inverse, x4.features)
        out = spconv.SparseConvTensor(
            features=features,
            indices=flat,
            spatial_shape=x4.spatial_shape[1:],
            batch_size=x4.batch_size,
        )
        return self.net.shared_conv(self.net.conv_out(out))


@pytest.mark.parametrize("training", [True, False])
def test_voxel_next_equals_code_that_edits_indices(training: bool) -> None:
    net = NETWORKS["VoxelNeXt"]().train(training)
    shaken(net)
    x = scene(900)
    before = x.indices.clone()
    wanted = PeerVoxelNeXt(net)(
        spconv.SparseConvTensor(x.features, x.indices, torch.tensor(GRID), 2)
    )
    got = net(x)
    assert torch.equal(x.indices, before)
    rows = torch.from_numpy(oracle.match_rows(got.indices.numpy(), wanted.indices.numpy()))
    torch.testing.assert_close(got.features[rows], wanted.features, rtol=1e-5, atol=1e-5)


# ----------------------------------------------------------------------- in torchsparse's style


def initial_voxelize(z: Any, scale: float) -> Any:
    places = torch.cat([z.C[:, :3] * scale, z.C[:, -1:]], 1)
    hashes = ts_nn.functional.sphash(torch.floor(places).int())
    sparse = torch.unique(hashes)
    index = ts_nn.functional.sphashquery(hashes, sparse)
    counts = ts_nn.functional.spcount(index.int(), len(sparse))
    cells = ts_nn.functional.spvoxelize(torch.floor(places), index, counts)
    made = ts.SparseTensor(
        ts_nn.functional.spvoxelize(z.F, index, counts), torch.round(cells).int(), 1
    )
    made.cmaps.setdefault(made.stride, made.coords)
    z.additional_features["idx_query"][1] = index
    z.additional_features["counts"][1] = counts
    z.C = places
    return made


def point_to_voxel(x: Any, z: Any) -> Any:
    cells = torch.floor(z.C[:, :3] / x.s[0]).int() * x.s[0]
    hashes = ts_nn.functional.sphash(torch.cat([cells, z.C[:, -1:].int()], 1))
    index = ts_nn.functional.sphashquery(hashes, ts_nn.functional.sphash(x.C))
    counts = ts_nn.functional.spcount(index.int(), x.C.shape[0])
    made = ts.SparseTensor(ts_nn.functional.spvoxelize(z.F, index, counts), x.C, x.s)
    made.cmaps, made.kmaps = x.cmaps, x.kmaps
    return made


def voxel_to_point(x: Any, z: Any) -> torch.Tensor:
    corners = ts_nn.utils.get_kernel_offsets(2, x.s, 1, device=z.F.device)
    cells = torch.floor(z.C[:, :3] / x.s[0]).int() * x.s[0]
    hashes = ts_nn.functional.sphash(torch.cat([cells, z.C[:, -1:].int()], 1), corners)
    index = ts_nn.functional.sphashquery(hashes, ts_nn.functional.sphash(x.C))
    weights = ts_nn.functional.calc_ti_weights(z.C, index, scale=x.s[0]).t().contiguous()
    return ts_nn.functional.spdevoxelize(x.F, index.t().contiguous(), weights)


def peer_conv(inner: int, outer: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    conv = ts_nn.Conv3d(inner, outer, size, stride=stride)
    return [conv, ts_nn.BatchNorm(outer), ts_nn.ReLU(True)]


class PeerPart(nn.Module):
    def __init__(self, *net: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*net)

    def forward(self, x: Any) -> Any:
        return self.net(x)


class PeerResidual(PeerPart):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(*peer_conv(inner, outer), *peer_conv(outer, outer)[:2])
        self.downsample = nn.Sequential(*(peer_conv(inner, outer, 1)[:2] if inner != outer else []))
        self.relu = ts_nn.ReLU(True)

    def forward(self, x: Any) -> Any:
        return self.relu(self.net(x) + self.downsample(x))


class PeerSPVCNN(nn.Module):
    def __init__(self, cs: list[int], scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.stem = nn.Sequential(*peer_conv(4, cs[0]), *peer_conv(cs[0], cs[0]))
        for i in range(1, 5):
            down = PeerPart(*peer_conv(cs[i - 1], cs[i - 1], 2, 2))
            blocks = [PeerResidual(cs[i - 1], cs[i]), PeerResidual(cs[i], cs[i])]
            self.add_module(f"stage{i}", nn.Sequential(down, *blocks))
        for i in range(1, 5):
            conv = ts_nn.Conv3d(cs[3 + i], cs[4 + i], 2, stride=2, transposed=True)
            up = PeerPart(conv, ts_nn.BatchNorm(cs[4 + i]), ts_nn.ReLU(True))
            wide = cs[4 + i] + cs[4 - i]
            blocks = [PeerResidual(wide, cs[4 + i]), PeerResidual(cs[4 + i], cs[4 + i])]
            self.add_module(f"up{i}", nn.ModuleList([up, nn.Sequential(*blocks)]))
        self.classifier = nn.Sequential(nn.Linear(cs[8], 5))
        self.point_transforms = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(True))
            for a, b in ((cs[0], cs[4]), (cs[4], cs[6]), (cs[6], cs[8]))
        )

    def forward(self, x: Any) -> torch.Tensor:
        z = ts.PointTensor(x.F, x.C.float())
        x0 = self.stem(initial_voxelize(z, self.scale))
        z.F = voxel_to_point(x0, z)
        levels = [point_to_voxel(x0, z)]
        for i in range(1, 5):
            levels.append(self.get_submodule(f"stage{i}")(levels[-1]))
        z.F = voxel_to_point(levels[4], z) + self.point_transforms[0](z.F)
        y = point_to_voxel(levels[4], z)
        for i, skip in ((1, levels[3]), (2, levels[2])):
            up, blocks = self.get_submodule(f"up{i}").children()
            y = blocks(ts.cat([up(y), skip]))
        z.F = voxel_to_point(y, z) + self.point_transforms[1](z.F)
        y = point_to_voxel(y, z)
        for i, skip in ((3, levels[1]), (4, x0)):
            up, blocks = self.get_submodule(f"up{i}").children()
            y = blocks(ts.cat([up(y), skip]))
        z.F = voxel_to_point(y, z) + self.point_transforms[2](z.F)
        return self.classifier(z.F)


@pytest.mark.parametrize("vres", [0.05, 0.07])
def test_spvcnn_equals_code_for_torchsparse(vres: float) -> None:
    ours = SPVCNN(4, 5, 0.25, vres=vres)
    shaken(ours)
    theirs = PeerSPVCNN(scaled_widths(0.25), 0.05 / vres)
    report = checkpoint.load(theirs, ours.state_dict(), source="spconv")
    assert report.missing == report.unexpected == []
    ours.eval(), theirs.eval()
    x = scene(900, (16, 16, 16))
    wanted = theirs(ts.SparseTensor(x.features, x.indices[:, [1, 2, 3, 0]].contiguous()))
    torch.testing.assert_close(ours(x), wanted, rtol=1e-4, atol=1e-4)
