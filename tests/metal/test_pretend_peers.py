"""The stand-ins for other libraries, and layers in rooms of fixed size, on the pretended Apple GPU:
values and gradients of the CPU, and no operator of PyTorch that is wrong there.

`metal_emu/pretend.py` has the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metal_emu
import pytest
import torch
from compat.test_across import MODELS, SIDE, run, scene
from metal_emu.pretend import pretend

import sparse3d
import sparse3d.compat.minkowski as ME
import sparse3d.compat.torchsparse.nn as tsnn
import sparse3d.compat.torchsparse.nn.functional as tsf
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry, pointops
from sparse3d.compat import torchsparse
from sparse3d.compat.pointops import query
from sparse3d.kernel_map import Coordinates
from sparse3d.models.minkowski_nets import MinkowskiFieldNet
from sparse3d.ops.keys import cell_numbers, find_keys, fnv_hash
from sparse3d.ops.lattice import (
    batch_count,
    extent,
    floored,
    in_cells,
    lattice_places,
    moved_by,
    on_lattice,
    window,
)
from sparse3d.ops.rows import affine_rows, combine_segments, combine_spread, reduce_operands
from sparse3d.ops.sample import sample_grid
from sparse3d.ops.segment import (
    first_of_segments,
    means_by_counts,
    sparse_product,
    standardize_segments,
    sum_by_channel,
)
from sparse3d.pointops import flat, voxel
from sparse3d.pointops.blocks import block_bounds, blocks_of, spans_around
from sparse3d.pointops.curves import site_codes, sites_of_codes

To = Callable[[Any], Any]
Result = tuple[torch.Tensor, torch.Tensor]
"""A sum over everything computed, and the leaf whose gradient is looked at."""
ROWS = 150


def square(*values: torch.Tensor) -> torch.Tensor:
    return torch.stack([value.square().sum() for value in values]).sum()


def net(style: str) -> Callable[[To], Result]:
    def forward(to: To) -> Result:
        feats, coords = scene(rows=ROWS)
        leaf = to(feats).requires_grad_()
        return square(run(style, to(MODELS[style]()), leaf, to(coords))[0]), leaf

    return forward


def minkowski_layers(to: To) -> Result:
    feats, coords = scene(rows=ROWS)
    leaf = to(feats).requires_grad_()
    x = ME.SparseTensor(leaf, coordinates=to(coords))
    down = to(ME.MinkowskiConvolution(4, 4, kernel_size=3, stride=2, dimension=3))(x)
    up = ME.MinkowskiGenerativeConvolutionTranspose(4, 4, kernel_size=2, stride=2, dimension=3)
    layers = (
        ME.MinkowskiMaxPooling(2, 2, dimension=3),
        ME.MinkowskiAvgPooling(2, 2, dimension=3),
        ME.MinkowskiSumPooling(2, 2, dimension=3),
        ME.MinkowskiGlobalPooling(),
        ME.MinkowskiGlobalMaxPooling(),
        ME.MinkowskiInstanceNorm(4),
        ME.MinkowskiChannelwiseConvolution(4, 3, dimension=3),
    )
    made = [to(up)(down), *(to(layer)(x) for layer in layers)]
    whole = made[4]
    made += [
        ME.MinkowskiBroadcastMultiplication()(x, whole),
        ME.MinkowskiBroadcastConcatenation()(x, whole),
        ME.MinkowskiPruning()(x, x.F[:, 0] > 0),
        ME.MinkowskiUnion()(x, x),
    ]
    between = ME.MinkowskiInterpolation()(x, to(coords.float() + 0.25))
    values = [between, x.dense()[0], x.features_at(0), *x.decomposed_features]
    return square(*(tensor.F for tensor in made), *values), leaf


def minkowski_fields(to: To) -> Result:
    """Points that share cells: one of them, or their mean; and back to the points."""
    feats, coords = scene(rows=ROWS)
    leaf = to(torch.cat([feats, feats[:30]])).requires_grad_()
    places = to(torch.cat([coords, coords[:30]]).float() + 0.1)
    Mode = ME.SparseTensorQuantizationMode
    values = []
    for mode in (Mode.UNWEIGHTED_AVERAGE, Mode.RANDOM_SUBSAMPLE):
        field = ME.TensorField(leaf, coordinates=places, quantization_mode=mode)
        x = field.sparse()
        again = field.sparse(coordinate_map_key=x.coordinate_map_key)
        values += [x.F, again.F, x.slice(field).F, x.cat_slice(field).F]
    return square(*values, field.splat().F), leaf


def minkowski_quantization(to: To) -> Result:
    feats, coords = scene(rows=ROWS)
    leaf = to(torch.cat([feats, feats[:30]])).requires_grad_()
    cells, labels = torch.cat([coords, coords[:30]])[:, 1:], torch.arange(180) % 3
    made = ME.utils.sparse_quantize(to(cells), leaf, labels=to(labels), ignore_label=-1)
    return square(*(part.float() for part in made)), leaf


def minkowski_products(to: To) -> Result:
    """Layers and functions whose gradient to the weight sums over all rows."""
    feats, coords = scene(rows=ROWS)
    leaf = to(feats).requires_grad_()
    x = ME.SparseTensor(leaf, coordinates=to(coords))
    layers = [to(ME.MinkowskiLinear(4, 5)), to(ME.MinkowskiSinusoidal(4, 6))]
    weight, bias = (to(value).requires_grad_() for value in (torch.randn(3, 4), torch.randn(3)))
    made = [layer(x) for layer in layers]
    made += [
        ME.MinkowskiFunctional.linear(x, weight, bias),
        ME.MinkowskiFunctional.linear(x, weight),
    ]
    learnt = [*(p for layer in layers for p in layer.parameters()), weight, bias]
    total = square(*(tensor.F for tensor in made))
    grads = torch.autograd.grad(total, learnt, retain_graph=True)
    return total + square(*grads), leaf


def minkowski_field_net(to: To) -> Result:
    feats, coords = scene(rows=ROWS)
    leaf = to(torch.cat([feats, feats[:30]])).requires_grad_()
    places = to(torch.cat([coords, coords[:30]]).float() + 0.1)
    network = to(MinkowskiFieldNet(4, 5, layers=(1,) * 4, planes=(8,) * 4, init_dim=8).eval())
    return square(network(leaf, places)), leaf


def torchsparse_functions(to: To) -> Result:
    feats, coords = scene(rows=ROWS)
    leaf, places = to(feats).requires_grad_(), to(coords)
    x = torchsparse.SparseTensor(leaf, places)
    table = tsf.sphash(places)
    twice = to(torch.cat([coords, coords[:30]]))
    rows = tsf.sphashquery(tsf.sphash(twice), table)
    means = tsf.spvoxelize(leaf[rows.long().clamp(min=0)].detach(), rows, tsf.spcount(rows, ROWS))
    corners = torch.cartesian_prod(*[torch.arange(2)] * 3).int()
    near = tsf.sphashquery(tsf.sphash(twice, to(corners)), table).t().contiguous()
    shares = tsf.calc_ti_weights(twice.float(), near)
    points = tsf.spdevoxelize(leaf, near, shares)
    pooled = tsnn.GlobalAvgPool()(x), tsnn.GlobalMaxPool()(x)
    strided = to(tsnn.Conv3d(4, 4, 3, stride=2))(x)
    cut = tsf.spcrop(x, (0, 0, 0), (1, 9, 9))
    return square(means, points, *pooled, strided.feats, cut.feats), leaf


def rows_of_tensors(to: To) -> Result:
    feats, coords = scene(rows=ROWS)
    leaf = to(feats).requires_grad_()
    x = SparseConvTensor(leaf, to(coords), [SIDE] * 3, 2)
    made = [
        x.select_by_index(leaf[:, 0] > 0),
        x.select_by_index(to(torch.tensor([3, 3, -1]))),
        SparseConvTensor.from_dense(x.dense(channels_first=False)),
    ]
    sites = Coordinates(to(coords), None, 2)
    pointwise = sites.pointwise(to(torch.arange(ROWS) % 5), 5)
    counted = pointwise.src.float() / ROWS + pointwise.splits.to(leaf.device)[-1]
    return square(*(tensor.features for tensor in made), counted), leaf


def rows_and_lattices(to: To) -> Result:
    """What stand-ins alone stand on: arithmetic of rows, lattices, samples of a grid."""
    feats, coords = scene(rows=ROWS)
    leaf, sites = to(feats).requires_grad_(), to(coords)
    half, places = leaf[: ROWS // 2], to(torch.arange(ROWS))
    batch = sites[:, 0].long()
    at = to(torch.rand(2, 40, 3) * SIDE)
    made = [
        combine_spread("mul", (leaf, places), (half, places[: ROWS // 2]), ROWS, keep_left=True),
        combine_segments("add", leaf, leaf[:2], batch),
        affine_rows(leaf, leaf[0], leaf[1]),
        reduce_operands("var", [leaf, leaf * 2]),
        means_by_counts(leaf, batch, to(torch.tensor([3, 0]))),
        sparse_product(batch, places, leaf[:, 0], 2, leaf),
        sum_by_channel(leaf, places[:, None].expand(-1, 4) // 2, ROWS),
        standardize_segments(leaf, batch, 2, 1e-5, 2, leaf[0], leaf[1]),
        sample_grid(leaf, sites, at),
        sample_grid(leaf, sites, at, "nearest"),
    ]
    stride = (2, 1, 3)
    fine = lattice_places(sites, stride)
    moved = moved_by(sites, to(torch.tensor([[0, 1, 2], [-1, 0, 0]])), to(torch.tensor(stride)))
    whole = [
        fine,
        window(fine, fine[:, 1:].amin(0), stride),
        moved,
        on_lattice(sites, stride),
        first_of_segments(batch, 4),
        find_keys(fnv_hash(sites), fnv_hash(moved), places, base=1),
        cell_numbers(sites[:, 1:], [SIDE] * 3),
        site_codes(sites, 4, "hilbert"),
        sites_of_codes(site_codes(sites, 4), 4),
        floored("points", at),
    ]
    bounds = to(torch.full((SIDE, SIDE), 9.0)), to(torch.full((SIDE, SIDE), -9.0))
    blocks = blocks_of(sites[:, 1:3], 2)
    low, high = block_bounds(blocks, leaf[:, 0].detach(), *bounds)
    spans = spans_around(blocks, low, high, 3)
    sizes = to(torch.tensor([*extent(sites), batch_count(sites)]).float())
    return square(
        *made, *(part.float() for part in whole), spans, in_cells(fine, stride), sizes
    ), leaf


def points(to: To) -> Result:
    cloud = torch.rand(200, 3) * 3
    leaf = to(cloud.clone()).requires_grad_()
    pooled = voxel.voxel_downsample(leaf, 1.0, None, leaf.sin())
    ends = to(torch.tensor([90, 200], dtype=torch.int32))
    shell = query.ball_query(4, 0.8, 0.1, to(cloud), ends)
    drawn = query.random_ball_query(4, 0.8, 0.1, to(cloud), ends)
    found = [distance for _, distance in (shell, drawn)]
    edges = flat.knn_graph(to(cloud), 3)
    lengths = (to(cloud)[edges[0]] - to(cloud)[edges[1]]).square().sum(1)
    mates = pointops.graclus_cluster(*edges, lengths, 200)
    cells = sparse3d.quantize(to(cloud), 0.5)
    return square(pooled.pos, pooled.features, *found, mates.float(), cells.float()), leaf


def rooms(to: To) -> Result:
    """Without a graph: what a captured network computes, and a captured training step."""
    feats, coords = scene(rows=ROWS)
    layers = to(
        spnn.SparseSequential(
            spnn.SubMConv3d(4, 8, 3, indice_key="a"),
            spnn.SparseBatchNorm(8),
            torch.nn.ReLU(),
            spnn.SparseConv3d(8, 8, 2, 2, indice_key="d"),
            spnn.SparseInverseConv3d(8, 4, 2, indice_key="d"),
        )
    )
    ordered = coords[coords[:, 0].argsort(stable=True)].contiguous()
    x = SparseConvTensor(to(feats), to(ordered), [SIDE] * 3, 2)
    layers.train()

    def step(x: SparseConvTensor) -> torch.Tensor:
        layers.zero_grad()
        loss = layers(x).features.square().sum()
        loss.backward()
        return loss.detach()

    trained = spnn.capture(step, x, train=True)(x)
    weight = next(layers.parameters())
    learnt = weight.grad.clone()
    layers.eval()
    for parameter in layers.parameters():
        parameter.requires_grad_(False)
    leaf = learnt.requires_grad_()
    return square(spnn.capture(layers, x)(x).features, trained, leaf), leaf


CASES: dict[str, Callable[[To], Result]] = {
    **{f"{style} net": net(style) for style in MODELS},
    "minkowski layers": minkowski_layers,
    "minkowski fields": minkowski_fields,
    "minkowski quantization": minkowski_quantization,
    "minkowski products": minkowski_products,
    "minkowski field net": minkowski_field_net,
    "torchsparse functions": torchsparse_functions,
    "rows of tensors": rows_of_tensors,
    "rows and lattices": rows_and_lattices,
    "points": points,
    "rooms": rooms,
}


def outcome(case: Callable[[To], Result], to: To) -> list[torch.Tensor]:
    torch.manual_seed(4)
    total, leaf = case(to)
    total.backward()
    assert leaf.grad is not None
    return [total.detach().cpu(), leaf.grad.cpu()]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_of_the_cpu(name: str) -> None:
    expected = outcome(CASES[name], lambda value: value)
    session = metal_emu.Session(metal_emu.fronts()[0], False, metal_emu.Options())
    with pretend(session) as to, _registry.strict():
        ours = outcome(CASES[name], to)
    for got, wanted in zip(ours, expected, strict=True):
        scale = float(wanted.abs().max())
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4 * max(scale, 1.0))
