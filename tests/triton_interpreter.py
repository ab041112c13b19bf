"""The Triton kernels of `sparse3d.cuda` on CPU tensors, through Triton's interpreter.

Triton decides on import whether it compiles or interprets: start with TRITON_INTERPRET=1.
Only the operators that Triton serves gain a kernel; the others run the reference.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
import torch

from sparse3d import _registry
from sparse3d.metal import _shader


def is_interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def enable() -> None:
    """Let `_registry.force("cuda")` reach the Triton kernels without a GPU."""
    interpreter = importlib.import_module("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _dot
    importlib.import_module("sparse3d.cuda.conv")
    _registry._load_errors["cuda"] = None
    _shader.install("cpu", _Sorter())


class _Sorter:
    """The one kernel of metal/ between those of a plan, in torch's words."""

    def series(
        self, kernels: _shader.Library, name: str, args: tuple[Any, ...], *_: object
    ) -> None:
        assert name == "sp_sort_pass"
        items, _, rows, *_, passes = args
        half = passes & 1
        items[half * rows :][:rows] = torch.sort(items[:rows]).values


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, most: Any) -> Any:
    """The interpreter's own multiplies bfloat16 as the integers that it keeps them in."""
    handle = importlib.import_module("triton.runtime.interpreter").TensorHandle
    product = np.matmul(_values(a), _values(b), dtype=d.data.dtype)
    return handle(product + d.data, d.dtype.scalar)


def _values(operand: Any) -> Any:
    if operand.data.dtype == np.uint16:
        return (operand.data.astype(np.uint32) << 16).view(np.float32)
    return operand.data
