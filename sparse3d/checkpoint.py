"""Weights of other libraries, and ours: read, recognise, rename, permute, load, save.

    report = checkpoint.load(model, "minkunet.pt")  # spvnas, mmdetection3d, Pointcept, ...

Files are opened with `weights_only=True` (nothing in them is executed) or as safetensors. What is
told apart is the *layout* of convolution kernels:

| layout | stored kernel | libraries |
|---|---|---|
| `spconv` | `[out, *k, in]`, 1 x 1 as `[in, out]` memory | spconv 2.2 and later, sparse3d |
| `spconv-2.1` | `[*k, out, in]` | spconv 2.0, 2.1 |
| `spconv-1` | `[*k, in, out]` | spconv 1.x |
| `minkowski` | `[K, in, out]`, first axis fastest | MinkowskiEngine 0.5 |
| `torchsparse` | `[K, in, out]`, first axis fastest if K is odd, else last | torchsparse 1.4, 2.x |

Names are matched after `module.` prefixes, `.bn.`, `.linear.` and `kernel` are made ours; a model
that is part of a larger one (`backbone_3d.`) is found by its prefix; mmdetection3d's MinkUNet is
renamed by rule.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import _check

__all__ = ["LAYOUTS", "LoadReport", "convert", "detect", "load", "read", "save", "to_canonical"]

LAYOUTS = ("spconv", "spconv-2.1", "spconv-1", "minkowski", "torchsparse")
State = Mapping[str, torch.Tensor]
PathLike = str | Path
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights")
# Entries that upstream models carry and never read.
_UNUSED = ("point_transforms.", "dropout.", "global_step")


@dataclass
class LoadReport:
    """What became of every entry of a checkpoint.

    Args:
        layout: of its kernels.
        loaded: number of entries taken over.
        renamed: our name -> the checkpoint's, where they differ.
        permuted: our name -> how the tensor was turned.
        missing: ours that the checkpoint lacks.
        unexpected: the checkpoint's that the model has no place for.
        ignored: the checkpoint's that are known to be unused, or belong to other parts of a model.
    """

    layout: str
    loaded: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    permuted: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.loaded} entries loaded, kernels as {self.layout} stores them"]
        lines += [f"renamed    {theirs} -> {ours}" for ours, theirs in self.renamed.items()]
        lines += [f"permuted   {name}: {how}" for name, how in self.permuted.items()]
        lines += [f"missing    {name}" for name in self.missing]
        lines += [f"unexpected {name}" for name in self.unexpected]
        lines += [f"ignored    {name}" for name in self.ignored]
        return "\n".join(lines)


# ------------------------------------------------------------------------------------- files


def read(file: PathLike | State) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint by name.

    Args:
        file: `.safetensors`, or what `torch.save` wrote: a state_dict, also inside `state_dict`,
            `model` and the like; or a mapping that is one.

    Raises:
        ValueError: if the file cannot be read without running code, or holds no tensors by name.
        ModuleNotFoundError: if a `.safetensors` file is given and safetensors is not installed.
    """
    if isinstance(file, Mapping):
        return _unwrapped(file, "state")
    path = Path(file)
    if path.suffix == ".safetensors":
        return dict(_safetensors().load_file(str(path)))
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path} must be a readable file, got: {error.strerror}") from None
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        way_out = "checkpoints that need code to open are refused: save the state_dict alone"
        raise ValueError(f"{path} must hold tensors only, got: {reason}; {way_out}") from None
    return _unwrapped(table, str(path))


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        message = "safetensors must be installed for .safetensors files; pip install safetensors"
        raise ModuleNotFoundError(message) from None
    return safetensors.torch


def _unwrapped(table: Any, name: str) -> dict[str, torch.Tensor]:
    while isinstance(table, Mapping):
        inner = next((table[k] for k in _WRAPPERS if isinstance(table.get(k), Mapping)), None)
        if inner is None:
            break
        table = inner
    if not isinstance(table, Mapping):
        _check.fail(name, "tensors by name", type(table).__name__)
    found = {k: v for k, v in table.items() if isinstance(v, torch.Tensor)}
    if not found:
        _check.fail(name, "tensors by name", f"entries {list(table)[:5]}")
    return found


def save(model: nn.Module | State, file: PathLike) -> None:
    """Write a model's state_dict, or tensors by name, as `.safetensors` or by `torch.save`."""
    state = model.state_dict() if isinstance(model, nn.Module) else dict(model)
    path = Path(file)
    if path.suffix == ".safetensors":
        _safetensors().save_file({k: v.contiguous() for k, v in state.items()}, str(path))
    else:
        torch.save(state, path)


# ------------------------------------------------------------------------------------- names


def _plain(name: str) -> str:
    """A name without wrappers: `module.`, `.bn.`, `.linear.`, `kernel`."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    name = re.sub(r"(^|\.)(?:bn|linear)\.(?=[a-z_]+$)", r"\1", name)
    return re.sub(r"(^|\.)kernels?$", r"\1weight", name)


_MMDET_BLOCK = {"conv1": "net.0", "norm1": "net.1", "bn1": "net.1"} | {
    "conv2": "net.3",
    "norm2": "net.4",
    "bn2": "net.4",
}


def _mmdet3d(name: str) -> str:
    """mmdetection3d's MinkUNet (any of its backends) as `sparse3d.models.MinkUNet`."""
    name = re.sub(r"\.downsample\.net\.", ".downsample.", name)
    stem = re.match(r"backbone\.conv_input\.(\d)\.(?:net\.)?(\d)\.(.+)", name)
    if stem:
        return f"stem.{3 * int(stem[1]) + int(stem[2])}.{stem[3]}"
    name = name.replace("decode_head.conv_seg.", "classifier.0.")
    part = re.match(r"backbone\.(encoder|decoder)\.(\d)\.(.+)", name)
    if not part:
        return name
    root = f"stage{int(part[2]) + 1}" if part[1] == "encoder" else f"up{int(part[2]) + 1}"
    rest = re.sub(r"^0\.(?:net\.)?(\d)\.", r"0.net.\1.", part[3], count=1)
    for theirs, ours in _MMDET_BLOCK.items():
        rest = rest.replace(f".{theirs}.", f".{ours}.")
    return f"{root}.{rest}"


_RULES: tuple[Callable[[str], str], ...] = (lambda name: name, _mmdet3d)


def _match(state: State, wanted: Sequence[str]) -> tuple[dict[str, str], str]:
    """Our (plain) name -> the checkpoint's, and the prefix under which they were found."""
    best: dict[str, str] = {}
    found = ""
    for rule in _RULES:
        theirs: dict[str, str] = {}
        for name in state:
            theirs.setdefault(rule(_plain(name)), name)
        for prefix in _prefixes(theirs, wanted):
            matched = {name: theirs[prefix + name] for name in wanted if prefix + name in theirs}
            if len(matched) > len(best):
                best, found = matched, prefix
    return best, found


def _prefixes(theirs: Mapping[str, str], wanted: Sequence[str]) -> list[str]:
    tails = list({wanted[0], wanted[len(wanted) // 2], wanted[-1]}) if wanted else []
    made = [""]
    for name in theirs:
        made += [name[: -len(t)] for t in tails if name.endswith(f".{t}")]
    return list(dict.fromkeys(made))


# ----------------------------------------------------------------------------------- kernels


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


def _stored_shape(layout: str, out: int, size: Sequence[int], inner: int) -> list[list[int]]:
    """Shapes in which a layout may store a kernel."""
    if layout in ("minkowski", "torchsparse"):
        shapes = [[math.prod(size), inner, out]]
        return [*shapes, [inner, out]] if math.prod(size) == 1 else shapes
    return {
        "spconv": [[out, *size, inner]],
        "spconv-2.1": [[*size, out, inner]],
        "spconv-1": [[*size, inner, out]],
    }[layout]


class _Slot:
    """A convolution kernel of a model: the layer that holds it and its shape."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.layout: str = layer.checkpoint_layout
        self.size: list[int] = list(layer.kernel_size)
        kernel = layer.canonical_kernel()
        self.out, self.inner = int(kernel.shape[0]), int(kernel.shape[-1])


def _slots(model: nn.Module) -> dict[str, _Slot]:
    """Plain name of each convolution kernel -> its slot."""
    made = {}
    for path, module in model.named_modules():
        if hasattr(module, "from_canonical"):
            made[f"{path}.weight" if path else "weight"] = _Slot(module)
    return made


def detect(state: State, model: nn.Module | None = None) -> str:
    """The layout of a checkpoint's kernels, by names and shapes.

    Args:
        state: tensors by name.
        model: that they are meant for; without it only names and shapes speak.

    Raises:
        ValueError: if several layouts fit and would give different weights; names them.
    """
    slots = {} if model is None else _slots(model)
    matched, _ = _match(state, list(slots)) if slots else ({}, "")
    fitting = [k for k in LAYOUTS if _fits(k, state, matched, slots)]
    fitting = _by_names(state, fitting)
    if not fitting:
        _check.fail("checkpoint", f"in one of the layouts {LAYOUTS}", "kernels of other shapes")
    if len(fitting) > 1:
        way_out = f"say which: source={fitting[0]!r}"
        _check.fail("checkpoint", "in one layout", f"shapes that fit {fitting}", way_out)
    return fitting[0]


def _fits(layout: str, state: State, matched: Mapping[str, str], slots: dict[str, _Slot]) -> bool:
    if not slots:
        return any(name.endswith("kernel") for name in state) == (layout in LAYOUTS[3:])
    for name, theirs in matched.items():
        slot = slots[name]
        shape = list(state[theirs].shape)
        if shape not in _stored_shape(layout, slot.out, slot.size, slot.inner):
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


# -------------------------------------------------------------------------------- load, convert


def load(
    model: nn.Module,
    file: PathLike | State,
    source: str = "auto",
    *,
    strict: bool = True,
    reverse_axes: bool = False,
) -> LoadReport:
    """Load a checkpoint of any of the libraries into a model.

    Args:
        model: of `sparse3d.nn` layers, or of a stand-in's.
        file: see `read`.
        source: the layout of its kernels, or "auto".
        strict: refuse if an entry is missing or has no place.
        reverse_axes: turn the kernels' axes round: for a model that is fed (z, y, x) where the
            checkpoint's was fed (x, y, z), or the other way round.

    Returns:
        What became of every entry.

    Raises:
        ValueError: if the layout is ambiguous, shapes do not fit, or (strict) entries are missing
            or left over.
    """
    state = read(file)
    if source not in ("auto", *LAYOUTS):
        _check.fail("source", f"'auto' or one of {LAYOUTS}", repr(source))
    layout = detect(state, model) if source == "auto" else source
    names = {_plain(name): name for name in model.state_dict()}
    matched, prefix = _match(state, list(names))
    report = LoadReport(layout)
    slots, targets, made = _slots(model), model.state_dict(), {}
    for plain, theirs in matched.items():
        ours = names[plain]
        if theirs != ours:
            report.renamed[ours] = theirs
        slot = slots.get(plain)
        value, how = _turned(state[theirs], slot, layout, reverse_axes)
        made[ours] = _shaped(ours, value, targets[ours])
        if how:
            report.permuted[ours] = how
    _account(report, state, matched, prefix, names, made)
    if strict and (report.missing or report.unexpected):
        _refuse(report)
    model.load_state_dict({**{k: targets[k] for k in report.missing}, **made}, strict=False)
    report.loaded = len(made)
    return report


def _turned(
    value: torch.Tensor, slot: _Slot | None, layout: str, reverse_axes: bool
) -> tuple[torch.Tensor, str]:
    if slot is None:
        return value, ""
    if layout == slot.layout and not reverse_axes and not _moved_pointwise(slot, layout):
        return value, ""
    shapes = _stored_shape(layout, slot.out, slot.size, slot.inner)
    if list(value.shape) not in shapes:
        _check.fail("kernel", f"of shape {shapes[0]} as {layout} stores it", list(value.shape))
    kernel = to_canonical(value, layout, slot.size, pointwise=_is_pointwise(slot, layout))
    if reverse_axes:
        axes = len(slot.size)
        kernel = kernel.permute(0, *reversed(range(1, axes + 1)), axes + 1)
        if slot.size != slot.size[::-1]:
            _check.fail("reverse_axes", "False for a kernel of unequal sizes", slot.size)
    stored = slot.layer.from_canonical(kernel)
    turn = ", axes reversed" if reverse_axes else ""
    return stored, f"{layout} {list(value.shape)} -> {slot.layout} {list(stored.shape)}{turn}"


def _is_pointwise(slot: _Slot, layout: str) -> bool:
    """Whether spconv stores this 1 x 1 kernel as `[in, out]` memory."""
    steps = getattr(slot.layer, "stride", [1])
    unit = getattr(slot.layer, "subm", False) or max(steps) == 1
    return layout == "spconv" and math.prod(slot.size) == 1 and unit


def _moved_pointwise(slot: _Slot, layout: str) -> bool:
    """An inverse 1 x 1 layer, which spconv stores turned and sparse3d does not."""
    return _is_pointwise(slot, layout) and not getattr(slot.layer, "stores_transposed", True)


def _shaped(name: str, value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if value.shape == target.shape:
        return value
    if value.squeeze().shape == target.squeeze().shape:
        return value.reshape(target.shape)
    way_out = "build the model with the checkpoint's widths"
    _check.fail(name, f"of shape {list(target.shape)}", list(value.shape), way_out)


def _account(
    report: LoadReport,
    state: State,
    matched: Mapping[str, str],
    prefix: str,
    names: Mapping[str, str],
    made: Mapping[str, torch.Tensor],
) -> None:
    used = set(matched.values())
    for name in state:
        if name in used:
            continue
        plain = _plain(name)
        other_part = prefix and not plain.startswith(prefix)
        unused = plain.removeprefix(prefix).startswith(_UNUSED)
        (report.ignored if other_part or unused else report.unexpected).append(name)
    optional = ("num_batches_tracked", "max_num_voxels_during_training")
    report.missing = [n for n in names.values() if n not in made and not n.endswith(optional)]


def _refuse(report: LoadReport) -> None:
    parts = []
    for kind in ("missing", "unexpected"):
        listed = getattr(report, kind)
        if listed:
            more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
            parts.append(f"{len(listed)} {kind}: {', '.join(listed[:3])}{more}")
    way_out = "build the model with the checkpoint's depth and widths, or pass strict=False"
    _check.fail("checkpoint", "of this model's entries", "; ".join(parts), way_out)


def convert(
    file: PathLike | State,
    target: PathLike | None = None,
    source: str = "auto",
    *,
    model: nn.Module | None = None,
    reverse_axes: bool = False,
) -> LoadReport:
    """Write a checkpoint of any of the libraries as one of sparse3d's.

    Args:
        file: see `read`.
        target: `.safetensors` or `.pth` to write; None writes nothing.
        source: the layout of its kernels, or "auto".
        model: that it is meant for, as a sparse3d model; without it kernels must be cubes.
        reverse_axes: see `load`.

    Returns:
        What became of every entry.

    Raises:
        ValueError: if the layout is ambiguous, or a kernel is no cube and no model is given.
    """
    state = read(file)
    if model is not None:
        report = load(model, state, source, reverse_axes=reverse_axes)
        made: State = model.state_dict()
    else:
        report, made = _converted(state, source, reverse_axes)
    if target is not None:
        save(made, target)
    return report


def _converted(
    state: State, source: str, reverse_axes: bool
) -> tuple[LoadReport, dict[str, torch.Tensor]]:
    layout = detect(state) if source == "auto" else source
    rule = _RULES[any(re.match(r"(module\.)*backbone\.encoder\.\d\.\d", n) for n in state)]
    report, made = LoadReport(layout), {}
    for name, tensor in state.items():
        ours = rule(_plain(name))
        if ours.startswith(_UNUSED):
            report.ignored.append(name)
            continue
        value = tensor
        if _is_kernel(name, tensor, layout):
            value, how = _cube(name, tensor, layout, reverse_axes)
            report.permuted[ours] = how
        elif ours.endswith("bias") and tensor.ndim == 2 and tensor.shape[0] == 1:
            value = tensor.reshape(-1)
        if ours != name:
            report.renamed[ours] = name
        made[ours] = value.contiguous()
    report.loaded = len(made)
    return report, made


def _is_kernel(name: str, tensor: torch.Tensor, layout: str) -> bool:
    if layout in ("minkowski", "torchsparse"):
        return name.endswith("kernel") and tensor.ndim in (2, 3)
    return layout != "spconv" and name.endswith("weight") and tensor.ndim in (3, 4, 5, 6)


def _cube(
    name: str, tensor: torch.Tensor, layout: str, reverse_axes: bool
) -> tuple[torch.Tensor, str]:
    """One kernel in sparse3d's storage, its sizes told from its shape."""
    if layout in ("minkowski", "torchsparse"):
        volume = tensor.shape[0] if tensor.ndim == 3 else 1
        edge = round(volume ** (1 / 3))
        if edge**3 != volume:
            _check.fail(name, "a cube's kernel where no model is given", f"{volume} taps")
        size = [edge] * 3
    else:
        size = list(tensor.shape[:-2])
    kernel = to_canonical(tensor, layout, size)
    axes = len(size)
    if reverse_axes:
        kernel = kernel.permute(0, *reversed(range(1, axes + 1)), axes + 1)
    stored = kernel
    if math.prod(size) == 1 and (tensor.ndim == 2 or layout.startswith("spconv")):
        stored = kernel.reshape(kernel.shape[0], -1).t().reshape(kernel.shape)
    return stored, f"{layout} {list(tensor.shape)} -> spconv {list(stored.shape)}"
