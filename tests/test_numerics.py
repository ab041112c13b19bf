"""docs/numerics.md says what is measured: its tables taken again in part, bounds around them."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from tolerance import FORWARD, GRADIENT

from sparse3d._cases.samples import SMALL, WIDE

ROOT = Path(__file__).resolve().parent.parent
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LEEWAY = 2.0
"""Other processors sum in another order, and another draw of numbers has another worst."""


@pytest.fixture(scope="module")
def bench():
    path = ROOT / "bench/bench_numerics.py"
    spec = importlib.util.spec_from_file_location("bench_numerics", path)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def recorded(bench):
    return bench.recorded(bench.PAGE.read_text("utf-8"))


def test_every_operator_that_rounds_is_in_the_table_at_every_size(bench, recorded):
    sizes = [f"{size.rows} x {size.c_in}" for size in bench.SIZES]
    for name in bench.floating_ops():
        for size in sizes:
            found = recorded[f"`{name}`", size]
            assert found.keys() >= DTYPES.keys()
            assert (name in bench.AUTOCAST) == ("autocast float16" in found)
    assert {"conv_forward", "conv_weight_grad", "batch_norm_grad"} <= set(bench.floating_ops())


def test_recorded_errors_of_operators_lie_within_the_tolerances_of_the_tests(recorded):
    for (name, _), found in recorded.items():
        if name.startswith("`"):
            for column, value in found.items():
                dtype = DTYPES[column.removeprefix("autocast ")]
                assert 0 < value <= (GRADIENT if "grad" in name else FORWARD)[dtype], name


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=lambda size: size.name)
def test_operators_are_as_exact_as_the_page_says(bench, recorded, size):
    for name in bench.floating_ops():
        row, where, found = bench.operator_row(name, size)
        for column, value in found.items():
            assert value <= LEEWAY * recorded[row, where][column], f"{name}, {where}, {column}"


def test_point_operators_are_as_exact_as_the_page_says(bench, recorded):
    for name in bench.point_calls(8):
        row, where, found = bench.point_row(name, 100)
        for column, value in found.items():
            assert value <= LEEWAY * recorded[row, where][column], f"{name}, {column}"


def test_layers_are_as_exact_as_the_page_says(bench, recorded):
    for row, where, found in bench.network_rows("SubMConv3d 4 -> 32", 2000, 24):
        assert {"autocast float16", "autocast bfloat16"} <= found.keys()
        for column, value in found.items():
            assert value <= LEEWAY * recorded[row, where][column], f"{row}, {column}"


@pytest.mark.nightly
def test_a_network_is_as_exact_as_the_page_says(bench, recorded):
    for row, where, found in bench.network_rows("MinkUNet, training", 6000, 40):
        for column, value in found.items():
            assert value <= LEEWAY * recorded[row, where][column], f"{row}, {column}"


def test_an_error_is_seen(bench):
    exact = torch.tensor([4.0, -2.0], dtype=torch.float64)
    assert bench.error(torch.tensor([4.0, -1.0]), exact) == 0.25
    assert bench.error(torch.tensor([0.5]), torch.tensor([0.0], dtype=torch.float64)) == 0.5
