"""Feature paths as ONNX files."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from .. import _check
from .._registry import NAMESPACE
from ..data.files import atomic
from ..tensor import SparseConvTensor
from ._feature_path import export_program
from ._operators import OPSET, SUPPORTED, Translator

__all__ = ["export_onnx"]

PathLike = str | os.PathLike[str]
DTYPES = (torch.float32, torch.float64)


def export_onnx(model: nn.Module, x: SparseConvTensor, path: PathLike) -> list[str]:
    """Write the feature path of `model` as an ONNX file of plain operators.

    The file appears whole or not at all. Weights lie inside it, so it has at most 2 GB.

    Args:
        model: float32 or float64, on the CPU, in any mode: its inference is what is written.
        x: an example scene, as for `export_program`.
        path: the file to write; its folder must exist.

    Returns:
        The names of the inputs, in order; `feature_inputs` makes them for other scenes.

    Raises:
        ModuleNotFoundError: if the `onnx` extra is not installed.
        TypeError: if the features are of another dtype, or not on the CPU.
        ValueError: if the model does something on sites that has no plain ONNX form (names it), the
            example is too small, or the folder is absent.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        line = "pip install 'sparse3d-torch[onnx]'"
        raise ModuleNotFoundError(f"{' and '.join(missing)} must be installed for ONNX; {line}")
    file = Path(path)
    if not file.absolute().parent.is_dir():
        _check.fail("path", "in a folder that exists", path, "make the folder first")
    if isinstance(x, SparseConvTensor) and x.dtype not in DTYPES:
        way_out = "export model.float() with x.float()"
        _check.fail_type("x: features", "float32 or float64 for ONNX", x.dtype, way_out)
    program = export_program(model, x)
    _refuse_other_operators(program)
    names = [str(node).removeprefix("inputs_") for node in program.graph_signature.user_inputs]
    made = torch.onnx.export(
        program,
        dynamo=True,
        custom_translation_table=Translator().table(),
        opset_version=OPSET,
        input_names=names,
        optimize=False,  # its time grows with the square of the taps; runtimes optimise themselves
        verbose=False,
    )
    assert made is not None
    with atomic(file) as out:
        out.write(made.model_proto.SerializeToString())
    return names


def _refuse_other_operators(program: torch.export.ExportedProgram) -> None:
    for node in program.graph.nodes:
        ours = getattr(node.target, "namespace", None) == NAMESPACE
        if ours and node.target not in SUPPORTED:
            name = str(node.target).removeprefix(f"{NAMESPACE}.").removesuffix(".default")
            _check.fail(
                "model",
                "made of convolutions, pools and torch layers for ONNX",
                f"the operator {name}",
                "export the part before it, and run that operator outside",
            )
