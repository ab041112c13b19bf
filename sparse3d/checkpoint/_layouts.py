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
from ._names import exact, is_minkowski_net, match
from ._refusal import Refusal, say_which

LAYOUTS = ("spconv", "spconv-2.1", "spconv-1", "minkowski", "torchsparse")
MOST_TAPS = 15  # where no model tells: more are channels, of another layout than was said


def to_canonical(
    tensor: torch.Tensor, layout: str, kernel_size: Sequence[int], *, pointwise: bool = False
) -> torch.Tensor:
    """A stored kernel as `[out, *kernel_size, in]`; views where it can.

    Args:
        tensor: as the layout stores it.
        layout: one of `LAYOUTS`.
        kernel_size: one entry an axis.
        pointwise: an spconv 2.x layer whose 1 x 1 kernel is `[in, out]` memory, whatever its shape.
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
    kernel = tensor.movedim(-2, 0) if layout == "spconv-2.1" else tensor
    if pointwise:
        outer, inner = kernel.shape[0], kernel.shape[-1]
        return kernel.reshape(inner, outer).t().reshape(kernel.shape)
    return kernel


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


def stored_as(layout: str, shape: Sequence[int], slot: Slot) -> str:
    """The layout of one kernel: spconv 2.1 keeps those of its implicit GEMM as 2.2 does."""
    if layout != "spconv-2.1" or _has(layout, shape, slot):
        return layout
    return "spconv" if math.prod(slot.size) <= 32 and _has("spconv", shape, slot) else layout


def _has(layout: str, shape: Sequence[int], slot: Slot) -> bool:
    return list(shape) in stored_shapes(layout, slot.out, slot.size, slot.inner)


class Slot:
    """A convolution kernel of a model: the layer that holds it and its shape."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.layout: str = layer.checkpoint_layout
        self.size: list[int] = list(layer.kernel_size)
        kernel = layer.canonical_kernel()
        self.out, self.inner = int(kernel.shape[0]), int(kernel.shape[-1])


def slots_of(model: nn.Module) -> dict[str, Slot]:
    """Name of each convolution kernel -> its slot; crosses and other shapes have none."""
    made = {}
    for path, module in model.named_modules():
        if hasattr(module, "from_canonical"):
            kernel = module._parameters.get("kernel")
            taps = len(kernel) if kernel is not None and kernel.ndim == 3 else None
            if taps not in (None, math.prod(module.kernel_size)):
                continue
            name = "weight" if kernel is None else "kernel"
            made[f"{path}.{name}" if path else name] = Slot(module)
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
    own = None if model is None else _own(state, model, slots)
    if own is not None:
        return own
    matched, _ = match(state, list(slots)) if slots else ({}, "")
    fitting = [k for k in LAYOUTS if _fits(k, state, matched, slots)]
    fitting = _by_names(state, fitting)
    if not slots and set(fitting) == set(LAYOUTS[:3]):
        fitting = _by_cubes(state, fitting)
    if not fitting and slots and _is_mixed(state, matched, slots):
        return "spconv-2.1"
    if not fitting:
        _check.fail("checkpoint", f"in one of the layouts {LAYOUTS}", "kernels of other shapes")
    if len(fitting) > 1:
        reason = f"checkpoint must be in one layout, got shapes that fit {fitting}"
        raise Refusal(reason, say_which(fitting, "source='{}'"), fitting)
    return fitting[0]


def _own(state: State, model: nn.Module, slots: dict[str, Slot]) -> str | None:
    """The layout of the model's layers, if the state is one of just such a model.

    spconv's layouts share their names: there names prove nothing.
    """
    layouts = {str(m.checkpoint_layout) for m in model.modules() if hasattr(m, "from_canonical")}
    named = {exact(name): name for name in state}
    if len(layouts) != 1 or layouts <= {*LAYOUTS[:3]} or set(named) != set(model.state_dict()):
        return None
    layout = layouts.pop()
    return layout if _fits(layout, state, {k: named[k] for k in slots}, slots) else None


def _fits(layout: str, state: State, matched: Mapping[str, str], slots: dict[str, Slot]) -> bool:
    if not slots:
        return any(name.endswith("kernel") for name in state) == (layout in LAYOUTS[3:])
    return all(_has(layout, state[theirs].shape, slots[n]) for n, theirs in matched.items())


def _is_mixed(state: State, matched: Mapping[str, str], slots: dict[str, Slot]) -> bool:
    """Whether each kernel is in one of spconv 2.1's two layouts, and none may be in either."""
    for name, theirs in matched.items():
        slot, shape = slots[name], state[theirs].shape
        either = _has("spconv", shape, slot) and _has("spconv-2.1", shape, slot)
        kept = stored_as("spconv-2.1", shape, slot)
        if not _has(kept, shape, slot) or (either and math.prod(slot.size) > 1):
            return False
    return True


def _by_names(state: State, fitting: list[str]) -> list[str]:
    """What names and side tensors tell, where shapes fit several layouts."""
    kernels = [name for name in state if name.endswith("kernel")]
    if not kernels and "spconv" in fitting and not any(v.ndim >= 3 for v in state.values()):
        return ["spconv"]
    if len(fitting) < 2 or not kernels:
        return fitting
    if any(name.endswith("bias") and state[name].ndim == 2 for name in state):
        return ["minkowski"]
    if is_minkowski_net(state):
        return ["minkowski"]
    # torchsparse's norm is a BatchNorm itself, in the list of its convolution. MinkowskiEngine's
    # holds one as `bn`, but so may any module: that proves nothing.
    lists = {name.rsplit(".", 2)[0] for name in kernels if re.search(r"\.\d+\.kernel$", name)}
    means = [name for name in state if re.search(r"\.\d+\.running_mean$", name)]
    if any(name.rsplit(".", 2)[0] in lists for name in means):
        return ["torchsparse"]
    even = [n for n in kernels if state[n].ndim == 3 and state[n].shape[0] % 2 == 0]
    return fitting if even else fitting[:1]  # odd kernels are stored alike


def _by_cubes(state: State, fitting: list[str]) -> list[str]:
    """Of spconv's layouts, those under which kernels are cubes, and give what layers after take."""
    kernels = {k: list(v.shape) for k, v in state.items() if k.endswith("weight") and v.ndim == 5}
    told = {k: s for k, s in kernels.items() if _is_cube(s[1:4]) != _is_cube(s[:3])}
    if not told:
        return fitting
    if all(_is_cube(shape[1:4]) for shape in told.values()):
        return ["spconv"]
    if not all(_is_cube(shape[:3]) for shape in told.values()):
        return fitting
    layouts = {side for name, shape in told.items() for side in _output_side(name, shape, state)}
    return [layouts.pop()] if len(layouts) == 1 else ["spconv-2.1", "spconv-1"]


def _is_cube(size: Sequence[int]) -> bool:
    return len(set(size)) == 1 and size[0] <= MOST_TAPS


def _output_side(name: str, shape: Sequence[int], state: State) -> list[str]:
    """The layout under which a kernel has as many outputs as its bias, or the norm after it in a
    list, has entries; nothing where none tells.
    """
    layer = name.removesuffix("weight")
    near = [f"{layer}bias"]
    counted = re.search(r"(\d+)\.$", layer)
    if counted:
        near.append(f"{layer[: counted.start()]}{int(counted[1]) + 1}.running_mean")
    widths = {len(state[key]) for key in near if key in state and state[key].ndim == 1}
    if shape[3] == shape[4]:
        return []
    sides = {"spconv-2.1": shape[3], "spconv-1": shape[4]}
    return [layout for layout, out in sides.items() if out in widths]
