"""How libraries store the kernel of a convolution, and how to tell which did."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .. import _check
from ._files import State
from ._names import match

LAYOUTS = ("spconv", "spconv-2.1", "spconv-1", "minkowski", "torchsparse")


def to_canonical(
    tensor: torch.Tensor, layout: str, kernel_size: Sequence[int], *, pointwise: bool = False
) -> torch.Tensor:
    """A stored kernel as `[out, *kernel_size, in]`; views where it can.

    Args:
        tensor: as the layout stores it.
        layout: one of `LAYOUTS`.
        kernel_size: one entry an axis.
        pointwise: an spconv 2.2 layer whose 1 x 1 kernel is `[in, out]` memory.
    """
    size, axes = list(kernel_size), len(kernel_size)
    if layout in ("minkowski", "torchsparse"):
        matrix = tensor if tensor.ndim == 3 else tensor[None]
        if layout == "torchsparse" and math.prod(size) % 2 == 0:
            return matrix.reshape(*size, *matrix.shape[1:]).movedim(-1, 0)
        backwards = matrix.reshape(*reversed(size), *matrix.shape[1:])
        order = [axes + 1, *reversed(range(axes)), axes]
        return backwards.permute(order)
    if layout == "spconv-1":
        return tensor.movedim(-1, 0)
    if layout == "spconv-2.1":
        return tensor.movedim(-2, 0)
    if pointwise:
        outer, inner = tensor.shape[0], tensor.shape[-1]
        return tensor.reshape(inner, outer).t().reshape(tensor.shape)
    return tensor


def stored_shapes(layout: str, out: int, size: Sequence[int], inner: int) -> list[list[int]]:
    """Shapes in which a layout may store a kernel."""
    if layout in ("minkowski", "torchsparse"):
        shapes = [[math.prod(size), inner, out]]
        return [*shapes, [inner, out]] if math.prod(size) == 1 else shapes
    return {
        "spconv": [[out, *size, inner]],
        "spconv-2.1": [[*size, out, inner]],
        "spconv-1": [[*size, inner, out]],
    }[layout]


class Slot:
    """A convolution kernel of a model: the layer that holds it and its shape."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.layout: str = layer.checkpoint_layout
        self.size: list[int] = list(layer.kernel_size)
        kernel = layer.canonical_kernel()
        self.out, self.inner = int(kernel.shape[0]), int(kernel.shape[-1])


def slots_of(model: nn.Module) -> dict[str, Slot]:
    """Plain name of each convolution kernel -> its slot."""
    made = {}
    for path, module in model.named_modules():
        if hasattr(module, "from_canonical"):
            made[f"{path}.weight" if path else "weight"] = Slot(module)
    return made


def detect(state: State, model: nn.Module | None = None) -> str:
    """The layout of a checkpoint's kernels, by names and shapes.

    Args:
        state: tensors by name.
        model: that they are meant for; without it only names and shapes speak.

    Raises:
        ValueError: if several layouts fit and would give different weights; names them.
    """
    slots = {} if model is None else slots_of(model)
    matched, _ = match(state, list(slots)) if slots else ({}, "")
    fitting = [k for k in LAYOUTS if _fits(k, state, matched, slots)]
    fitting = _by_names(state, fitting)
    if not fitting:
        _check.fail("checkpoint", f"in one of the layouts {LAYOUTS}", "kernels of other shapes")
    if len(fitting) > 1:
        way_out = f"say which: source={fitting[0]!r}"
        _check.fail("checkpoint", "in one layout", f"shapes that fit {fitting}", way_out)
    return fitting[0]


def _fits(layout: str, state: State, matched: Mapping[str, str], slots: dict[str, Slot]) -> bool:
    if not slots:
        return any(name.endswith("kernel") for name in state) == (layout in LAYOUTS[3:])
    for name, theirs in matched.items():
        slot = slots[name]
        shape = list(state[theirs].shape)
        if shape not in stored_shapes(layout, slot.out, slot.size, slot.inner):
            return False
    return True


def _by_names(state: State, fitting: list[str]) -> list[str]:
    """What names and side tensors tell, where shapes fit several layouts."""
    kernels = [name for name in state if name.endswith("kernel")]
    if not kernels and "spconv" in fitting and not any(v.ndim >= 3 for v in state.values()):
        return ["spconv"]
    if len(fitting) < 2 or not kernels:
        return fitting
    rows = [name for name in state if name.endswith("bias") and state[name].ndim == 2]
    wrapped = any(re.search(r"\.bn\.(weight|running_mean)$", name) for name in state)
    if rows or wrapped:
        return ["minkowski"]
    if any(re.search(r"\.\d+\.(weight|running_mean)$", name) for name in state):
        return ["torchsparse"]
    even = [n for n in kernels if state[n].ndim == 3 and state[n].shape[0] % 2 == 0]
    return fitting if even else fitting[:1]  # odd kernels are stored alike
