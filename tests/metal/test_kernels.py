"""Metal kernels under the harness against the torch reference, at the sizes where tiles begin and
end."""

from collections import Counter
from itertools import product
from typing import Any

import metal_emu
import pytest
import torch
from metal_emu import MetalError, Session, fronts, installed
from tolerance import assert_close, assert_same

from sparse3d import _registry
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates, KernelMap
from sparse3d.ops import conv as ops
from sparse3d.ops import kernel_map as rules
from sparse3d.ops.coordinates import coordinate_unique
from sparse3d.ops.norm import (
    batch_norm_grad,
    batch_norm_relu,
    batch_norm_relu_again,
    batch_norm_train,
)
from sparse3d.ops.segment import segment_sum
from sparse3d.pointops.ball_query import ball_search
from sparse3d.pointops.fps import fps_sample
from sparse3d.pointops.knn import knn_search

SIZES = (0, 1, 31, 32, 33, 63, 64, 65, 129)
DOWN = Geometry((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1))
both = pytest.mark.parametrize("front", fronts())


def cloud(rows: int, seed: int = 0, batches: int = 2) -> torch.Tensor:
    """Distinct voxels, about five neighbours each, batches mixed."""
    draw = torch.Generator().manual_seed(seed)
    side = max(2, round((2.5 * rows) ** (1 / 3)))
    cells = torch.cartesian_prod(torch.arange(batches), *[torch.arange(side)] * 3).int()
    return cells[torch.randperm(len(cells), generator=draw)[:rows]].contiguous()


def values(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def convolutions(
    pairs: KernelMap, cin: int, cout: int, dtype: torch.dtype = torch.float32, groups: int = 1
) -> list[torch.Tensor]:
    """Forward, both gradients and the fused form, on the backend in force."""
    x, w = values(1, pairs.num_in, cin, dtype=dtype), values(2, cout, pairs.num_taps, cin // groups)
    w, grad = (w / 8).to(dtype), values(3, pairs.num_out, cout, dtype=dtype)
    residual, bias = values(4, pairs.num_out, cout, dtype=dtype), values(5, cout)
    lists = (pairs.src, pairs.dst, pairs.splits)
    plan, grad_plan = pairs.plan(), pairs.grad_plan()
    return [
        ops.conv_forward(x, w, *lists, plan, grad_plan, pairs.num_out, groups),
        ops.conv_input_grad(grad, w, *lists, grad_plan, plan, pairs.num_in, groups),
        ops.conv_weight_grad(x, grad, *lists, plan, grad_plan, groups),
        ops.conv_fused(x, w, *lists, plan, pairs.num_out, groups, bias, residual, "relu", 0.0),
    ]


def on_both(run: Any) -> tuple[Any, Any]:
    with _registry.force("reference"):
        expected = run()
    with _registry.force("metal"), _registry.strict():
        return run(), expected


@pytest.fixture(scope="module", params=[(f, s) for f in fronts() for s in (0, 1000, 2000)], ids=str)
def session(request: pytest.FixtureRequest) -> Any:
    front, seed = request.param
    with installed(front, seed=seed, meter=False) as running:
        yield running


@pytest.mark.parametrize("rows", SIZES)
def test_sizes(session: Session, rows: int) -> None:
    """Maps bit for bit, features to float tolerance, no fault; three schedules, both front ends."""
    coords = cloud(rows, rows)

    def maps() -> list[KernelMap]:
        sites = Coordinates(coords, None, 2)
        return [sites.submanifold([3, 3, 3], [1, 1, 1]), sites.footprint(DOWN, None)[0]]

    for ours, expected in zip(*on_both(maps), strict=True):
        for name in ("src", "dst", "splits", "out_indices"):
            assert_same(getattr(ours, name), getattr(expected, name), name)
        for cin, cout in ((8, 16), (4, 8), (8, 72)):
            results = on_both(lambda: convolutions(expected, cin, cout))  # noqa: B023
            for got, want in zip(*results, strict=True):
                assert_close(got, want, torch.float32)


@both
@pytest.mark.parametrize(
    ("cin", "cout", "groups", "dtype"),
    [
        (24, 64, 1, torch.float16),
        (20, 40, 1, torch.bfloat16),
        (17, 33, 1, torch.float32),
        (16, 130, 1, torch.float16),
        (12, 120, 1, torch.float32),
        (32, 32, 2, torch.float32),
        (12, 12, 12, torch.float16),
        (3, 32, 1, torch.float16),
        (24, 19, 1, torch.float32),
        (8, 24, 1, torch.float16),
    ],
    ids=str,
)
def test_channels(front: str, cin: int, cout: int, groups: int, dtype: torch.dtype) -> None:
    with installed(front, meter=False), _registry.force("reference"):
        pairs = Coordinates(cloud(90, 3), None, 2).footprint(DOWN, None)[0]
        for ours, expected in zip(
            *on_both(lambda: convolutions(pairs, cin, cout, dtype, groups)), strict=True
        ):
            assert_close(ours, expected, dtype)


@both
@pytest.mark.parametrize("rows", [0, 1, 33, 513, 1100])
def test_batch_norm(front: str, rows: int) -> None:
    """More than one chunk of 512 rows, with and without scale and shift, and a constant column."""
    x, grad = values(1, rows, 5) * 3 + 7, values(2, rows, 5)
    x[:, 4] = 2.0
    weight, bias = values(3, 5), values(4, 5)

    def run() -> list[torch.Tensor]:
        results = []
        for w, b in ((weight, bias), (None, None)):
            out, mean, var = batch_norm_train(x, w, b, 1e-5)
            results += [out, mean, var, *batch_norm_grad(grad, x, w, mean, var, 1e-5)]
        return results

    with installed(front, meter=False):
        for ours, expected in zip(*on_both(run), strict=True):
            assert torch.allclose(ours, expected, rtol=1e-4, atol=2e-4)


@both
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_norm_and_relu_in_one_pass_give_the_bytes_of_their_steps(
    front: str, dtype: torch.dtype, added: bool
) -> None:
    """Gradients and the rows made again included; a column on ReLU's kink, and a NaN in another."""
    rows = 600
    side = values(4, rows, 5, dtype=dtype) if added else None
    up, pair = values(5, rows, 5, dtype=dtype), (values(2, 5), values(3, 5) - 0.5)
    x = (values(1, rows, 5) * 3 + 7).to(dtype)
    x[:, 4], pair[1][4], x[9, 3] = 3.0, 0.0, float("nan")

    def leaves() -> list[torch.Tensor]:
        given = (x, *pair) if side is None else (x, *pair, side)
        return [value.clone().requires_grad_() for value in given]

    with installed(front, meter=False), _registry.force("metal"), _registry.strict():
        fused, one_by_one = leaves(), leaves()
        out = batch_norm_relu(fused[0], None, None, *fused[1:3], residual=(*fused, None)[3])
        steps, mean, var = batch_norm_train(*one_by_one[:3], 1e-5)
        wanted = torch.relu(steps + one_by_one[3] if added else steps)
        results = [(out, wanted)]
        for value, given in ((out, fused), (wanted, one_by_one)):
            value.backward(up)
            assert all(leaf.grad is not None for leaf in given)
        results += [(a.grad, b.grad) for a, b in zip(fused, one_by_one, strict=True)]
        if not added:
            results.append((batch_norm_relu_again(x, *pair, mean, var, 1e-5), wanted))
    for got, expected in results:
        assert got.dtype == expected.dtype
        assert torch.equal(got.nan_to_num(9e3), expected.nan_to_num(9e3))
    assert 0 < (out == 0).sum() < out.numel()


@both
@pytest.mark.parametrize("transposed", [False, True])
def test_dataflows_agree(front: str, transposed: bool) -> None:
    """Weight-stationary and output-stationary, on mirrored and on strided maps, both directions."""
    with installed(front) as running, _registry.force("metal"):
        from sparse3d.metal import conv

        sites = Coordinates(cloud(150, 4), None, 2)
        for pairs in (sites.submanifold([3, 3, 3], [1, 1, 1]), sites.footprint(DOWN, None)[0]):
            x, w = values(1, pairs.num_in, 24), values(2, 40, pairs.num_taps, 24) / 8
            lists, plan, count = (pairs.src, pairs.dst, pairs.splits), pairs.plan(), pairs.num_out
            if transposed:
                x, lists = values(3, count, 40), (pairs.dst, pairs.src, pairs.splits)
                plan, count = pairs.grad_plan(), pairs.num_in
            options = {"plan": plan, "count": count, "groups": 1, "backward": transposed}
            tiles = conv.run(x, w, lists, **options, dataflow="tiles")
            taps = conv.run(x, w, lists, **options, dataflow="taps")
            assert_close(taps, tiles, torch.float32)
        mirrored = running.launches("sp_conv_tap")[0]
        assert len(running.launches("sp_conv_tap")) == 27 // 2 + 27
        assert mirrored.threadgroups > 0


@both
def test_pairs_that_meet_in_one_output_row(front: str) -> None:
    """Repeated output coordinates: several pairs of a tap sum into one input row in the
    gradient."""
    coords, wanted = cloud(40, 5), cloud(20, 5)
    wanted = torch.cat([wanted, wanted[:7], wanted[:3]])
    geometry = Geometry((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1))
    with installed(front, meter=False), _registry.force("reference"):
        lists = rules.given(coords, wanted, geometry)
        pairs = KernelMap(*lists, coords, wanted, geometry)
        for ours, expected in zip(*on_both(lambda: convolutions(pairs, 8, 16)), strict=True):
            assert_close(ours, expected, torch.float32)


@both
def test_the_same_bytes_under_every_schedule(front: str) -> None:
    pairs = Coordinates(cloud(130, 6), None, 2).submanifold([3, 3, 3], [1, 1, 1])
    runs = []
    for seed in (0, 500, 900):
        pairs._plans.clear()
        with installed(front, seed=seed, meter=False), _registry.force("metal"):
            runs.append([*convolutions(pairs, 16, 24, torch.float16), *pairs.plan()])
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


def test_work_is_split_and_results_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatches below the watchdog's budget; partial sums of the weight gradient in batches."""
    pairs = Coordinates(cloud(300, 7), None, 2).submanifold([3, 3, 3], [1, 1, 1])
    with installed() as running, _registry.force("metal"):
        from sparse3d.metal import _shader, conv

        whole = convolutions(pairs, 16, 16)
        before = len(running.launches("sp_conv"))
        monkeypatch.setattr(_shader, "_BUDGET", 1 << 16)
        monkeypatch.setattr(conv, "_PARTIAL_BYTES", 4 * 16 * 16 * 5)
        split = convolutions(pairs, 16, 16)
        assert len(running.launches("sp_conv")) - before > before
        assert len(running.launches("sp_weight_grad")) > 3
    assert all(map(torch.equal, whole, split))


@both
@pytest.mark.parametrize("transposed", [False, True])
def test_work_by_taps_is_split_too(
    front: str, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every launch of the weight-stationary dataflow and of its finish stays below the budget;
    on a mirrored map, whose taps come in pairs, and on a strided one, whose taps differ in
    length."""
    budget = 64 * 16 * 16  # one tile of one tap: a launch cannot do less
    with installed(front) as running, _registry.force("metal"):
        from sparse3d.metal import _shader, conv

        sites = Coordinates(cloud(700, 7), None, 2)
        for pairs in (sites.submanifold([3, 3, 3], [1, 1, 1]), sites.footprint(DOWN, None)[0]):
            x, w = values(1, pairs.num_in, 16), values(2, 16, pairs.num_taps, 16) / 8
            lists, plan, count = (pairs.src, pairs.dst, pairs.splits), pairs.plan(), pairs.num_out
            if transposed:
                x, lists = values(3, count, 16), (pairs.dst, pairs.src, pairs.splits)
                plan, count = pairs.grad_plan(), pairs.num_in
            options = {"plan": plan, "count": count, "groups": 1, "backward": transposed}
            running.log.clear()
            whole = conv.run(x, w, lists, **options, dataflow="taps")
            before = Counter(t.kernel for t in running.log)
            running.log.clear()
            with monkeypatch.context() as small:
                small.setattr(_shader, "_BUDGET", budget)
                split = conv.run(x, w, lists, **options, dataflow="taps")
            assert torch.equal(whole, split)
            after = Counter(t.kernel for t in running.log)
            assert all(after[name] > before[name] > 0 for name in ("sp_conv_tap", "sp_conv_finish"))
            assert all(t.simd_macs <= budget * (1 + pairs.mirrored) for t in running.log)


@pytest.mark.parametrize(("most", "which"), [(128, 0), (64, -1), (40, 0), (32, -1)])
def test_a_gpu_that_allows_fewer_threads(most: int, which: int) -> None:
    """A kernel that takes many registers may have smaller groups: each asks for no more. Sources
    and launches are the same for either front end."""
    front = fronts()[which]
    coords = cloud(140, 11)
    repeated = torch.cat([coords, coords.flip(0)])

    def run() -> list[torch.Tensor]:
        sites = Coordinates(coords, None, 2)
        pairs = sites.submanifold([3, 3, 3], [1, 1, 1])
        down = sites.footprint(DOWN, None)[0]
        made = [pairs.src, pairs.dst, down.src, down.out_indices, *coordinate_unique(repeated)]
        points, bounds = coords[:, 1:].float(), torch.tensor([[0, 140, 0, 140, 0]])
        whole = torch.tensor([[0, 140, 0, 20, 3, 0]])
        none = torch.empty(0, dtype=torch.uint8)
        for strategy in ("single", "multigroup"):
            made.append(fps_sample(points, whole, 20, False, False, 0, strategy))
        made += knn_search(points, points, bounds, none, 5, "squared")
        made += ball_search(points, points, bounds, none, 4.0, 6, False)
        ids = coords[:, 1].contiguous()
        return [*made, segment_sum(values(6, 140, 5), ids, 9)]

    with installed(front, max_threads=most, meter=False):
        for ours, expected in zip(*on_both(run), strict=True):
            if ours.is_floating_point():
                assert_close(ours, expected, torch.float32)
            else:
                assert_same(ours, expected, "integers")
        with _registry.force("reference"):
            pairs = Coordinates(coords, None, 2).footprint(DOWN, None)[0]
        for cin, cout in ((24, 72), (40, 64), (4, 8)):
            results = on_both(lambda: convolutions(pairs, cin, cout))  # noqa: B023
            for ours, expected in zip(*results, strict=True):
                assert_close(ours, expected, torch.float32)
        with _registry.force("metal"):
            from sparse3d.metal import conv

            x, w = values(1, pairs.num_in, 24), values(2, 72, pairs.num_taps, 24) / 8
            lists = (pairs.src, pairs.dst, pairs.splits)
            options = {"plan": pairs.plan(), "count": pairs.num_out, "groups": 1}
            both_ways = [conv.run(x, w, lists, **options, dataflow=d) for d in ("tiles", "taps")]
            assert_close(*both_ways, torch.float32)


def test_offset_and_strided_arguments() -> None:
    """Views that start off a 16-byte boundary or are not contiguous are copied, not misread."""
    pairs = Coordinates(cloud(40, 8), None, 2).submanifold([3, 3, 3], [1, 1, 1])
    wide, w = values(1, pairs.num_in * 8 + 1), values(2, 8, 27, 8)
    lists = (pairs.src, pairs.dst, pairs.splits)
    for x in (wide[1:].reshape(-1, 8), values(3, 8, pairs.num_in).T):
        with installed():
            results = on_both(
                lambda: ops.conv_forward(x, w, *lists, [], [], pairs.num_out, 1)  # noqa: B023
            )
        assert_close(*results, torch.float32)


def test_float64_goes_to_the_reference_and_strict_says_so() -> None:
    pairs = Coordinates(cloud(20, 9), None, 2).submanifold([3, 3, 3], [1, 1, 1])
    x, w = values(1, 20, 8).double(), values(2, 8, 27, 8).double()
    arguments = (x, w, pairs.src, pairs.dst, pairs.splits, [], [], 20, 1)
    with installed(), _registry.force("metal"):
        assert ops.conv_forward(*arguments).dtype == torch.float64
        with _registry.strict(), pytest.raises(RuntimeError, match="metal kernel"):
            ops.conv_forward(*arguments)


def test_launch_checks() -> None:
    with installed():
        from sparse3d.metal import _shader

        kernels = _shader.library("coordinates")
        coords = cloud(40)
        table = torch.full((128,), -1, dtype=torch.int32)
        with pytest.raises(ValueError, match="must fit 32 bits"):
            _shader.each(kernels, "sp_table_insert", coords, table, 2**33, 127, threads=40)
        with pytest.raises(ValueError, match="must be contiguous"):
            _shader.each(kernels, "sp_table_insert", coords.T, table, 40, 127, threads=40)
        with pytest.raises(ValueError, match="at most 2\\^31 - 1"):
            _shader.rows_fit("rows", 2**31)
        with pytest.raises(TypeError, match="float32, float16 or bfloat16"):
            _shader.element(torch.float64)
        meta = torch.empty(4, 4, dtype=torch.int32, device="meta")
        with pytest.raises(TypeError, match="must be on cpu, mps, got meta"):
            _shader.each(kernels, "sp_table_insert", meta, table, 40, 127, threads=40)


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def _without_barrier(text: str, which: int) -> str:
    parts = text.split(BARRIER)
    return BARRIER.join(parts[: which + 1]) + ";" + BARRIER.join(parts[which + 1 :])


def _barriers() -> list[tuple[str, int]]:
    with installed():
        from sparse3d.metal import _shader

        return [
            (stem, i)
            for stem in ("conv", "conv_grad")
            for i in range((_shader._FOLDER / f"{stem}.metal").read_text().count(BARRIER))
        ]


@pytest.mark.parametrize(("stem", "which"), _barriers())
def test_every_barrier_is_needed(stem: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels with one barrier left out must be caught."""
    pairs = Coordinates(cloud(150, 4), None, 2).submanifold([3, 3, 3], [1, 1, 1])
    with installed("gcc", meter=False), _registry.force("metal"):
        from sparse3d.metal import _shader, conv

        whole = _shader.source

        def source(name: str) -> str:
            if name != stem:
                return whole(name)
            common, own = whole(name).split(f'#line 1 "{name}.metal"')
            return f'{common}#line 1 "{name}.metal"{_without_barrier(own, which)}'

        monkeypatch.setattr(_shader, "source", source)
        x, w = values(1, pairs.num_in, 40), values(2, 72, 27, 40)
        lists = (pairs.src, pairs.dst, pairs.splits)

        def everything() -> None:
            for dataflow in ("tiles", "taps"):
                conv.run(x, w, lists, pairs.plan(), 150, 1, dataflow=dataflow)
            ops.conv_weight_grad(x, values(3, 150, 72), *lists, pairs.plan(), [], 1)

        with pytest.raises(MetalError, match="race: "):
            everything()


STEMS = {
    "coordinates": {"SP_COLS": (2, 3, 4, 5)},
    "kernel_map": {"SP_COLS": (2, 3, 4, 5)},
    "dense": {"SP_COLS": (2, 5), "SP_ELEM": ("bfloat",)},
    "voxelize": {"SP_COLS": (2, 5), "SP_ELEM": ("bfloat",)},
    "norm": {"SP_ELEM": ("half", "bfloat")},
    "pool": {"SP_ELEM": ("float", "half", "bfloat")},
    "segment": {"SP_ELEM": ("half", "bfloat")},
    "conv": {"SP_ELEM": ("float", "half", "bfloat")},
    "conv_grad": {"SP_ELEM": ("float", "half", "bfloat")},
    "ball_query": {},
    "fps": {},
    "group": {},
    "index": {},
    "knn": {"SP_METRIC": (0, 1, 2)},
    "scan": {},
    "sort": {"SP_SORT_THREADS": (32, 512)},
    "conv_plan": {},
}


@both
@pytest.mark.parametrize("stem", STEMS)
def test_every_source_compiles(front: str, stem: str) -> None:
    """Lint, syntax tree and compiler, for every dimension and element type."""
    with installed():
        from sparse3d.metal import _shader

        text = _shader.source(stem)
    assert text.count("#pragma METAL fp math_mode(safe)") == 1  # whatever the user's fast math
    choices = [(name, value) for name, values in STEMS[stem].items() for value in values]
    for name, value in choices or [("SP_NOTHING", 1)]:
        metal_emu.compile_shader(f"#define {name} {value}\n{text}", front=front)


def test_every_file_is_listed() -> None:
    with installed():
        from sparse3d.metal import _shader

        stems = {f.stem for f in _shader._FOLDER.glob("*.metal")}
    assert stems == STEMS.keys() | {"common"}


@pytest.mark.parametrize("threads", [32, 256])
def test_sort_in_smaller_groups(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU that runs no groups of 512."""
    keys = torch.randint(0, 2**12, (1100,), dtype=torch.int32)
    expected = torch.sort(keys, stable=True)
    with installed():
        from sparse3d.metal import _sort

        monkeypatch.setattr(_sort, "_SIZES", (threads,))
        ordered, rows = _sort.sort(keys, 12)
    assert torch.equal(ordered, expected.values)
    assert torch.equal(rows.long(), expected.indices)


def test_threadgroup_memory_fits() -> None:
    """Both element sizes, the widest tiles of either height; a larger one does not compile."""
    with installed(check=False) as running:
        from sparse3d.metal import _shader, conv

        for dtype in (torch.float32, torch.float16):
            for width, backward in product((64, 96, 128), (False, True)):
                layer = conv._Layer(64, width, 27, 1, backward)
                running.compile(_shader.library("conv", **conv.macros(layer, dtype)).text())
        assert 0 < max(running.threadgroup_bytes().values()) <= 32768


def test_every_op_of_the_engine_has_a_kernel() -> None:
    """The table that users see."""
    with installed():
        listed = _registry.backends()
        engine = [
            name
            for name, op in _registry._ops.items()
            if op.reference.__module__.startswith("sparse3d.ops.")
        ]
        assert len(engine) > 15
        found = {name: listed[name]["metal"] for name in engine}
        assert found == dict.fromkeys(engine, "kernel")
