"""Every public name of `spconv.pytorch` 2.3.8 is in `sparse3d.nn`, with its parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import sparse3d.nn as spnn
from sparse3d.nn import int8

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("spconv_pytorch_names.json").read_text()
)
MODULES = [name for name in RECORDED if name.startswith("spconv.pytorch")]
# What our class does not have because there is nothing to bind: spconv's classes are built from
# tables, ours by layers.
BUILT_BY_LAYERS = {"IndiceData", "ImplicitGemmIndiceData"}
REFUSED = {"TorchAllocator", "TorchSpconvMatmul", "torch_tensor_to_tv", "torch_tensors_to_tv"}
# autograd.Function subclasses: only `apply` is called.
APPLY_ONLY = {name for name in RECORDED["spconv.pytorch.functional"] if name.endswith("Function")}


def ours(module: str) -> Any:
    return importlib.import_module(module.replace("spconv.pytorch", "sparse3d.nn", 1))


def parameters(signature: str) -> list[tuple[str, Any]]:
    """Names and literal defaults of a recorded signature; `...` stands for what is no literal."""
    arguments = ast.parse(f"def f{signature}: pass").body[0].args  # type: ignore[attr-defined]
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    made = []
    for argument, default in zip(arguments.args, [*missing, *arguments.defaults], strict=True):
        if default is None:
            made.append((argument.arg, inspect.Parameter.empty))
            continue
        try:
            made.append((argument.arg, ast.literal_eval(default)))
        except ValueError:
            made.append((argument.arg, ...))
    return made


def check(function: Any, signature: str) -> None:
    mine = list(inspect.signature(function).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in mine):
        return
    for index, (name, default) in enumerate(parameters(signature)):
        assert index < len(mine), f"parameter {name} is missing"
        assert mine[index].name == name
        if default is not ... and default is not inspect.Parameter.empty:
            assert mine[index].default == default, name
        if default is inspect.Parameter.empty:
            continue
        assert mine[index].default is not inspect.Parameter.empty, name


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_there(module: str) -> None:
    missing = [name for name in RECORDED[module] if not hasattr(ours(module), name)]
    assert missing == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in MODULES
        for name, facts in RECORDED[module].items()
        if "signature" in facts and name not in BUILT_BY_LAYERS | REFUSED | APPLY_ONLY
        if not module.endswith("quantization")
    ],
)
def test_parameters_and_defaults(module: str, name: str) -> None:
    check(getattr(ours(module), name), RECORDED[module][name]["signature"])


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in MODULES
        for name, facts in RECORDED[module].items()
        if facts["kind"] == "class" and name not in REFUSED | APPLY_ONLY
    ],
)
def test_members(module: str, name: str) -> None:
    made = getattr(ours(module), name)
    recorded = RECORDED[module][name].get("members", {})
    missing = [member for member in recorded if not hasattr(made, member)]
    assert missing == []


def test_listed_names_are_exported() -> None:
    """`from sparse3d.nn import *` brings every class of `from spconv.pytorch import *`."""
    missing = set(RECORDED["spconv.pytorch"]) - set(spnn.__all__)
    assert missing == set()


def test_int8_refuses() -> None:
    static = spnn.quantization.get_spconv_qat_to_static_mapping()
    assert static[spnn.SubMConv3d] is int8.SparseConv
    for name in int8.__all__:
        with pytest.raises(NotImplementedError, match="int8 quantisation is not implemented"):
            getattr(int8, name)(1, 1)
