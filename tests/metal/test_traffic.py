"""What the convolution moves and multiplies: the meter, the model of bench/metal_model.py, and the
bounds."""

import json
import sys
from pathlib import Path
from typing import Any

import metal_emu
import numpy as np
import pytest
import torch
from metal_emu import fronts, installed

from sparse3d import _registry
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates, KernelMap
from sparse3d.ops.conv import conv_forward, conv_input_grad, conv_weight_grad
from sparse3d.ops.linear import linear_rows, linear_weight_grad

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import _metal_launches as launches
import _metal_network as network
import metal_model as model

pytestmark = pytest.mark.data
SCAN = "data/lidar/kitti_spvnas_000000.bin"
VOXEL = 0.05
SIZES = {torch.float32: 4, torch.float16: 2}


@pytest.fixture(scope="module")
def frame(request: pytest.FixtureRequest) -> Any:
    """The whole scan: its map and row order, made by the kernels."""
    shared = request.getfixturevalue("shared")
    return model.plan_of(model.read_voxels(shared / SCAN, VOXEL))


def _piece(shared: Path, count: int) -> tuple[KernelMap, np.ndarray]:
    voxels = model.read_voxels(shared / SCAN, VOXEL)
    distance = (voxels[:, 2:] - voxels[:, 2:].median(0).values).abs().amax(1)
    nearest = distance.argsort(stable=True)[:count].sort().values
    return model.plan_of(voxels[nearest].contiguous())


@pytest.fixture(scope="module")
def cut(request: pytest.FixtureRequest) -> tuple[KernelMap, np.ndarray]:
    """A piece of it, small enough to run every access through the checker."""
    return _piece(request.getfixturevalue("shared"), 2500)


@pytest.fixture(scope="module")
def small_cut(request: pytest.FixtureRequest) -> tuple[KernelMap, np.ndarray]:
    """For 128 channels, which multiply four times as much."""
    return _piece(request.getfixturevalue("shared"), 600)


HALF = Geometry((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1))
FORMS = {
    "stem": ("3x3x3", 4, 32),
    "narrow": ("3x3x3", 32, 32),
    "joined": ("3x3x3", 48, 96),
    "odd": ("3x3x3", 20, 120),
    "strided": ("strided", 32, 32),
    "wide strided": ("strided", 64, 72),
    "inverse": ("inverse", 64, 48),
    "1x1x1": ("1x1x1", 96, 64),
    "head": ("rows", 96, 19),
}
"""What MinkUNet42 has, but for widths that would take the emulator minutes, and one that fills no
fragment."""


@pytest.fixture(scope="module")
def maps(request: pytest.FixtureRequest) -> dict[str, KernelMap]:
    """Of a piece of 300 voxels, one of each kind."""
    pairs, _ = _piece(request.getfixturevalue("shared"), 300)
    sites = Coordinates(pairs.in_indices, None, 1)
    with _registry.force("reference"):
        down = sites.footprint(HALF, None)[0]
        return {
            "3x3x3": sites.submanifold([3, 3, 3], [1, 1, 1]),
            "strided": down,
            "inverse": down.transposed(),
            "1x1x1": sites.identity(),
        }


def metered(one: Any, direction: str, size: int) -> list[Any]:
    """Traffic of a layer's launches, its plans aside."""
    dtype = {4: torch.float32, 2: torch.float16}[size]
    rows_in, rows_out, taps = one.sizes
    x, grad = torch.randn(rows_in, one.cin).to(dtype), torch.randn(rows_out, one.cout).to(dtype)
    weight = torch.randn(one.cout, taps, one.cin).to(dtype)
    with installed(fronts()[0]) as running, _registry.force("metal"), _registry.strict():
        if one.pairs is None:
            if direction == "weight gradient":
                linear_weight_grad(x, grad)
            else:
                backward = direction != "forward"
                linear_rows(grad if backward else x, weight[:, 0].contiguous(), backward)
            return running.log
        lists = (one.pairs.src, one.pairs.dst, one.pairs.splits)
        plan, grad_plan = map(list, one.plans)
        if direction == "forward":
            conv_forward(x, weight, *lists, plan, grad_plan, rows_out, 1)
        elif direction == "input gradient":
            conv_input_grad(grad, weight, *lists, grad_plan, plan, rows_in, 1)
        else:
            conv_weight_grad(x, grad, *lists, plan, grad_plan, 1)
        return running.log


@pytest.mark.parametrize("direction", network.DIRECTIONS)
@pytest.mark.parametrize(
    ("form", "size"), [*((form, 4) for form in FORMS), ("stem", 2), ("joined", 2), ("strided", 2)]
)
def test_every_kind_of_layer_in_every_direction(
    maps: dict[str, KernelMap], form: str, direction: str, size: int
) -> None:
    """Model = meter: arithmetic exactly, bytes within 2 %."""
    kind, cin, cout = FORMS[form]
    pairs = maps.get(kind)
    one = network.planned(network.Convolution(form, pairs, 300, cin, cout))
    kernels, cost = one.cost(direction, size)
    log = metered(one, direction, size)
    assert cost.macs == sum(t.macs for t in log)
    assert abs(cost.nbytes / sum(t.device_merged for t in log) - 1) < 0.02
    ran = {t.kernel for t in log}
    assert ran <= network.KERNELS[kernels]


def layer(cin: int, cout: int, dtype: torch.dtype) -> Any:
    return model.Layer(cin, cout, SIZES[dtype])


def run(pairs: KernelMap, cin: int, cout: int, dtype: torch.dtype, kernel: str) -> Any:
    """Traffic of one forward layer on the harness."""
    with installed(fronts()[0]) as running, _registry.force("metal"):
        from sparse3d.metal import conv

        pairs._plans.clear()
        x = torch.randn(pairs.num_in, cin).to(dtype)
        w = torch.randn(cout, pairs.num_taps, cin).to(dtype)
        lists = (pairs.src, pairs.dst, pairs.splits)
        conv.run(x, w, lists, pairs.plan(), pairs.num_out, 1, dataflow="tiles")
        return running.launches(kernel)[-1]


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@pytest.mark.parametrize(("piece", "channels"), [("cut", 64), ("small_cut", 128)])
def test_bytes_and_arithmetic_on_a_cut(
    request: pytest.FixtureRequest, piece: str, channels: int, dtype: torch.dtype
) -> None:
    """Meter <= 1.1 x the minimum that a formula gives; model = meter; and in tiles of 64 rows,
    issued <= 1.15 x useful (the whole frame, below, holds it in tiles of 32 rows too)."""
    pairs, rows = request.getfixturevalue(piece)
    shape = layer(channels, channels, dtype)
    counts = model.tile_counts(pairs.neighbours().numpy(), rows, shape.tile_rows)
    traffic = run(pairs, channels, channels, dtype, "sp_conv")
    least = model.minimum_bytes(counts, pairs.num_out, shape)
    assert traffic.device_merged <= 1.1 * least
    if shape.tile_rows == 64:
        assert traffic.simd_macs <= 1.15 * len(pairs) * channels * channels
    cost = model.predicted(counts, pairs.num_out, shape)
    assert cost.macs == traffic.simd_macs
    assert abs(cost.nbytes / traffic.device_merged - 1) < 0.02


@pytest.mark.parametrize(
    ("depth", "dtype", "step"),
    [(4, 4, 8), (8, 4, 8), (9, 4, 16), (19, 4, 8), (24, 2, 8), (40, 2, 8), (48, 2, 16),
     (64, 2, 32), (100, 2, 16), (120, 4, 16), (120, 2, 32)],
)  # fmt: skip
def test_steps_pad_few_channels(depth: int, dtype: int, step: int) -> None:
    assert model.Layer(depth, 32, dtype).macros["SP_BK"] == step


def test_a_stem_of_four_channels(cut: Any) -> None:
    pairs, _ = cut
    traffic = run(pairs, 4, 32, torch.float16, "sp_conv_small")
    useful = len(pairs) * 4 * 32
    assert useful <= traffic.macs <= 1.5 * useful


@pytest.mark.parametrize("channels", [64, 128])
def test_one_thread_a_scalar_moves_far_more(cut: Any, channels: int) -> None:
    pairs, _ = cut
    text = "#define SP_ELEM float\n" + (Path(__file__).parent / "naive.metal").read_text()
    library = metal_emu.compile_shader(text, front=fronts()[0])
    keep = 4096 // channels
    table = pairs.neighbours()[:keep].contiguous()
    x, w = torch.randn(pairs.num_in, channels), torch.randn(27, channels, channels)
    out = torch.zeros(keep, channels)
    arguments = (x, w, table, out, keep, 27, channels, channels)
    library.sp_naive(*arguments, threads=(channels, keep), group_size=(32, 4))
    found = int((table >= 0).sum())
    naive = model.naive_bytes(found, keep, 27, layer(channels, channels, torch.float32))
    assert abs(naive / library.sp_naive.traffic.device_merged - 1) < 0.02


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@pytest.mark.parametrize("channels", [64, 128])
def test_bounds_on_the_whole_frame(frame: Any, channels: int, dtype: torch.dtype) -> None:
    """By the model, which the cut holds against the meter."""
    pairs, rows = frame
    shape = layer(channels, channels, dtype)
    counts = model.tile_counts(pairs.neighbours().numpy(), rows, shape.tile_rows)
    cost = model.predicted(counts, pairs.num_out, shape)
    assert counts.sum() == len(pairs)
    assert cost.nbytes <= 1.1 * model.minimum_bytes(counts, pairs.num_out, shape)
    assert cost.macs <= 1.15 * len(pairs) * channels * channels
    assert model.naive_bytes(len(pairs), pairs.num_out, 27, shape) >= 18 * cost.nbytes


def test_the_dataflow_choice_counts_bytes_as_the_meter_does(cut: Any) -> None:
    pairs, _ = cut
    with installed(fronts()[0]) as running, _registry.force("metal"):
        from sparse3d.metal import _plan, conv

        pairs._plans.clear()
        plan = pairs.plan()
        shape = conv._Layer(32, 32, 27, 1, False)
        x, w = torch.randn(pairs.num_in, 32), torch.randn(32, 27, 32)
        lists = (pairs.src, pairs.dst, pairs.splits)
        out = conv.run(x, w, lists, plan, pairs.num_out, 1, dataflow="taps")
        taps = sum(t.device_merged for t in running.launches("sp_conv_tap"))
        # The finish and the centre tap, which is no gather, are outside the count.
        centre = int(pairs.splits.diff()[13])
        counted = conv._tap_bytes(pairs.splits, shape, out, 64)
        counted -= centre * (32 * 4 + 8 * 32) + -(-centre // 64) * 32 * 32 * 4
        assert abs(taps / counted - 1) < 0.1
        conv.run(x, w, lists, plan, pairs.num_out, 1, dataflow="tiles")
        tiles = running.launches("sp_conv")[-1].device_merged
        assert abs(tiles / conv._tile_bytes(_plan.Plan(*plan), shape, out, 1) - 1) < 0.2


def test_the_table_prints(cut: Any) -> None:
    lines = model.table(*cut)
    assert len(lines) == 8
    assert "PREDICTED" in lines[0]


WAYS = ("", "dx ", "dw ")
RESULTS = Path(__file__).parents[2] / "bench" / "results"


def _committed(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / name).read_text())["results"]
    return rows


def _named(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_every_layer_of_minkunet_is_in_the_committed_table(maps: dict[str, KernelMap]) -> None:
    """The 50 layers, in both dtypes and all directions, each at most at its bound."""
    made = model.network_records(maps["3x3x3"].in_indices)
    kept = _committed("metal_network.json")
    assert list(made[0]) == list(kept[0])
    names = ("dtype", "layer", "channels", "alike")
    assert _named(made, *names) == _named(kept, *names)
    for rows in (made, kept):
        assert sum(row["alike"] for row in rows) == 2 * 50
        assert all(row[f"{way}issued"] >= 1 for row in rows for way in WAYS)
    # Of a small piece taps may have no pairs: their weights, which the bound has, are not read.
    assert all(row[f"{way}flop/B"] <= row["bound"] for row in kept for way in WAYS)
    wide = [
        row for row in kept if not row["channels"].endswith("->19") and row["by"] != "few channels"
    ]
    assert all(row["issued"] <= 1.15 for row in wide)
    # 19 channels in 24; 4 in 8: the gradient to a stem's input, which no training asks for.
    head = [row for row in kept if row["channels"].endswith("->19")]
    assert all(row[f"{way}issued"] <= 1.3 for row in head for way in ("", "dx "))
    assert all(row["dx issued"] <= 2.2 for row in kept if row["channels"].startswith("4->"))
    ways = {row[f"{way}by"] for row in kept for way in WAYS}
    assert ways == network.KERNELS.keys()
    assert model.lines_of(made)[0].split() == " ".join(kept[0]).split()
    page = (Path(__file__).parents[2] / "docs" / "metal.md").read_text()
    assert "\n".join(model.page_lines(kept)) in page


def test_every_kernel_is_in_the_committed_counts(maps: dict[str, KernelMap]) -> None:
    made = launches.records(maps["3x3x3"].in_indices, rows=120)
    kept = _committed("metal_launches.json")
    assert list(made[0]) == list(kept[0])
    assert _named(made, "operator", "kernel") == _named(kept, "operator", "kernel")
    least = {row["kernel"]: row for row in kept}
    for kernel in ("sp_table_insert", "sp_footprint_insert", "sp_dense_owner"):
        assert least[kernel]["atomics"] > 0
    for kernel in ("sp_conv", "sp_weight_grad", "sp_fps", "sp_sort_pass", "sp_scan"):
        assert least[kernel]["barriers"] > 0
        assert 0 < least[kernel]["threadgroup memory"] <= 32768
        assert least[kernel]["threadgroup bytes"] > 0


def test_the_committed_counts_are_of_the_kernels_of_now(shared: Path) -> None:
    """Within 1 %: a compare-and-swap that fails for no reason is made again."""
    made = launches.records(model.read_voxels(shared / SCAN, VOXEL))
    for row, kept in zip(made, _committed("metal_launches.json"), strict=True):
        for name, value in row.items():
            close = pytest.approx(kept[name], rel=0.01) if isinstance(value, int) else kept[name]
            assert value == close, (row["operator"], row["kernel"], name)
