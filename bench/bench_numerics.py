"""Measure how far half precision lies from float64, and write the tables of docs/numerics.md.

    python bench/bench_numerics.py            # prints the tables
    python bench/bench_numerics.py --write    # puts them into docs/numerics.md

An error is the largest |ours - exact| over the largest |exact| of a call (over 1 where that is
smaller). Exact is the reference in float64. Operators get inputs that the type holds exactly;
autocast gets float32 inputs, so that its rounding of them counts too.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import sparse3d.nn as spnn  # noqa: E402
from sparse3d import SparseConvTensor, _registry, pointops  # noqa: E402
from sparse3d._cases.samples import SMALL, WIDE, Size, engine_ops, samples  # noqa: E402
from sparse3d.models.minkunet import MinkUNet  # noqa: E402

PAGE = ROOT / "docs/numerics.md"
MARKS = ("<!-- measured: python bench/bench_numerics.py --write -->", "<!-- end of measured -->")
LARGE = Size("large", 9000, 64, 96)
SIZES = (SMALL, WIDE, LARGE)
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
AUTOCAST = ("conv_forward", "conv_fused")
Row = tuple[str, str, dict[str, float]]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def widened(value: Any) -> Any:
    """The same values in float64."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(widened, value))
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def error(ours: Any, exact: Any) -> float:
    """Worst over what is floating."""
    if isinstance(ours, torch.Tensor):
        ours, exact = [ours], [exact]
    worst = 0.0
    for left, right in zip(ours, exact, strict=True):
        if left.is_floating_point() and left.numel():
            size = max(1.0, float(right.abs().max()))
            worst = max(worst, float((left.detach().double() - right.detach()).abs().max()) / size)
    return worst


def floating_ops() -> list[str]:
    """Engine operators that round: floating results of floating arguments, but for copies."""
    exact = {"dense_scatter", "dense_gather", "pool_max", "segment_max", "trilinear_map"}
    found = []
    for name, op in engine_ops().items():
        results = [str(r.type) for r in op.overload._schema.returns]
        first = samples(op, SMALL)[0]
        out = op(*first)
        parts = out if isinstance(out, (list, tuple)) else [out]
        if "Tensor" in results[0] and any(p.is_floating_point() for p in parts):
            found += [name] if name not in exact else []
    return found


def operator_row(name: str, size: Size) -> Row:
    """Errors of one operator at one size, in each type and under autocast."""
    op, found = engine_ops()[name], {}
    for dtype in FLOATS:
        with _registry.force("cpu"):
            calls = samples(op, size, dtype)
            ours = [op(*args) for args in calls]
        with _registry.force("reference"):
            exact = [op(*widened(args)) for args in calls]
        found[name_of(dtype)] = max(map(error, ours, exact))
    for dtype in HALVES if name in AUTOCAST else ():
        with _registry.force("cpu"), torch.no_grad():
            calls = samples(op, size, torch.float32)
            with torch.autocast("cpu", dtype):
                ours = [op(*args) for args in calls]
        with _registry.force("reference"):
            exact = [op(*widened(args)) for args in calls]
        found[f"autocast {name_of(dtype)}"] = max(map(error, ours, exact))
    return f"`{name}`", f"{size.rows} x {size.c_in}", found


def point_calls(points: int) -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Point operators with floating arguments that may be of any type."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    index = torch.randint(0, points, (2, points, 3), generator=generator)
    groups = torch.randint(0, points // 4, (points,), generator=generator)
    weight = torch.rand(2, points, 3, generator=generator)
    return {
        "three_interpolate": (
            lambda f, w: pointops.three_interpolate(f, index, w),
            [normal(2, 16, points), weight],
        ),
        "scatter_sum": (
            lambda v: pointops.scatter_sum(v, groups, 0), [normal(points, 16)]
        ),
        "scatter_mean": (
            lambda v: pointops.scatter_mean(v, groups, 0), [normal(points, 16)]
        ),
    }  # fmt: skip


def point_row(name: str, points: int) -> Row:
    found = {}
    for dtype in FLOATS:
        call, inputs = point_calls(points)[name]
        given = [value.to(dtype) for value in inputs]
        ours = call(*given)
        with _registry.force("reference"):
            found[name_of(dtype)] = error(ours, call(*widened(given)))
    return f"`pointops.{name}`", f"{points} points", found


def scene(rows: int, side: int) -> SparseConvTensor:
    generator = torch.Generator().manual_seed(0)
    cell = torch.randperm(side**3, generator=generator)[:rows]
    sites = torch.stack([cell * 0, cell // side**2, cell // side % side, cell % side], 1).int()
    return SparseConvTensor(torch.randn(rows, 4, generator=generator), sites, [side] * 3, 1)


def networks() -> dict[str, Callable[[], nn.Module]]:
    widths = [16, 16, 32, 32, 64, 64, 32, 32, 16]
    return {
        "SubMConv3d 4 -> 32": lambda: spnn.SubMConv3d(4, 32, 3),
        "SparseConv3d 4 -> 32, stride 2": lambda: spnn.SparseConv3d(4, 32, 3, 2, 1),
        "MinkUNet, inference": lambda: MinkUNet(widths=widths).eval(),
        "MinkUNet, training": lambda: MinkUNet(widths=widths).train(),
    }


def step(model: nn.Module, x: SparseConvTensor, gradients: bool) -> list[torch.Tensor]:
    """Output rows, and the gradients of their mean square by parameter."""
    out = model(x)
    rows = out.features if isinstance(out, SparseConvTensor) else out
    if not gradients:
        return [rows.detach()]
    wanted = list(model.parameters())
    return [rows.detach(), *torch.autograd.grad(rows.float().square().mean(), wanted)]


def network_rows(name: str, rows: int, side: int) -> list[Row]:
    """Errors of outputs, and of the gradients of all parameters as one vector, by its length."""
    torch.manual_seed(0)
    model, x = networks()[name](), scene(rows, side)
    exact_model, gradients = copy.deepcopy(model).double(), name != "MinkUNet, inference"
    exact = step_double(exact_model, x, gradients)
    outputs: dict[str, float] = {}
    slopes: dict[str, float] = {}
    for dtype in (None, *HALVES):
        for cast in (False, True) if dtype else (False,):
            title = "float32" if dtype is None else name_of(dtype)
            title = f"autocast {title}" if cast else title
            used = copy.deepcopy(model)
            given = x
            if dtype is not None and not cast:
                used, given = used.to(dtype), x.to(dtype)
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=cast):
                found = step(used, given, gradients)
            outputs[title] = error(found[0], exact[0])
            if gradients:
                slopes[title] = relative(found[1:], exact[1:])
    made: list[Row] = [(f"{name}: output", f"{rows} voxels", outputs)]
    return [*made, (f"{name}: gradients", f"{rows} voxels", slopes)] if gradients else made


def step_double(model: nn.Module, x: SparseConvTensor, gradients: bool) -> list[torch.Tensor]:
    with _registry.force("reference"):
        out = model(x.double())
        rows = out.features if isinstance(out, SparseConvTensor) else out
        if not gradients:
            return [rows.detach()]
        return [rows.detach(), *torch.autograd.grad(rows.square().mean(), list(model.parameters()))]


def relative(ours: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Length of the difference over length, of all tensors as one vector."""
    apart = sum(float((a.double() - b).square().sum()) for a, b in zip(ours, exact, strict=True))
    return float((apart / sum(float(b.square().sum()) for b in exact)) ** 0.5)


class Rounded(torch.autograd.Function):
    """Values rounded to a type and held in float64; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return values.to(dtype).double()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def rounding_row(name: str, rows: int, side: int) -> Row:
    """Gradients in float64 where nothing but the output of every layer is rounded: what the type
    itself costs, whoever computes."""
    torch.manual_seed(0)
    model, x = networks()[name]().double(), scene(rows, side)
    exact, found = step_double(model, x, True), {}
    layers = (spnn.SparseConvolution, spnn.SparseBatchNorm)
    for dtype in HALVES:

        def round_output(
            module: nn.Module, given: Any, out: Any, dtype: torch.dtype = dtype
        ) -> Any:
            return out.replace_feature(Rounded.apply(out.features, dtype))

        used = copy.deepcopy(model)
        for module in used.modules():
            if isinstance(module, layers):
                module.register_forward_hook(round_output)
        found[name_of(dtype)] = relative(step_double(used, x, True)[1:], exact[1:])
    return "the same in float64, outputs of layers rounded: gradients", f"{rows} voxels", found


def operator_rows() -> Iterator[Row]:
    for name in floating_ops():
        for size in SIZES:
            yield operator_row(name, size)
    for name in point_calls(8):
        for points in (100, 5000):
            yield point_row(name, points)


def table(rows: Sequence[Row], columns: Sequence[str], head: str) -> str:
    lines = [
        f"| {head} | size | " + " | ".join(columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for name, size, found in rows:
        cells = [f"{found[column]:.1e}" if column in found else "" for column in columns]
        lines.append(f"| {name} | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page() -> str:
    """Both tables, as docs/numerics.md has them between its marks."""
    halves = [name_of(dtype) for dtype in HALVES]
    columns = ["float32", *halves, *(f"autocast {half}" for half in halves)]
    nets = [
        row
        for name in networks()
        for row in network_rows(name, *((2000, 24) if "MinkUNet" not in name else (6000, 40)))
    ]
    nets.append(rounding_row("MinkUNet, training", 6000, 40))
    parts = [
        table(list(operator_rows()), columns, "operator"),
        table(nets, columns, "layer or network"),
    ]
    return "\n\n".join(parts)


def recorded(text: str) -> dict[tuple[str, str], dict[str, float]]:
    """The tables of a page, by first two cells."""
    begin, end = (text.index(mark) for mark in MARKS)
    found: dict[tuple[str, str], dict[str, float]] = {}
    columns: list[str] = []
    for line in text[begin:end].splitlines():
        cells = (
            [cell.strip() for cell in re.findall(r"[^|]+", line)] if line.startswith("|") else []
        )
        if len(cells) < 3 or cells[0].startswith("---"):
            continue
        if cells[1] == "size":
            columns = cells[2:]
            continue
        values = zip(columns, cells[2:], strict=False)
        found[cells[0], cells[1]] = {column: float(cell) for column, cell in values if cell}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into docs/numerics.md")
    made = page() if not (options := parser.parse_args()).write else ""
    if not options.write:
        print(made)
        return
    text = PAGE.read_text("utf-8")
    begin, end = (text.index(mark) for mark in MARKS)
    PAGE.write_text(f"{text[: begin + len(MARKS[0])]}\n{page()}\n{text[end:]}", "utf-8")


if __name__ == "__main__":
    main()
