"""Loading into a model, converting, and what became of every entry."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from .. import _check
from ._files import PathLike, State, read_marked, save
from ._layouts import (
    LAYOUTS,
    MOST_TAPS,
    Slot,
    detect,
    slots_of,
    stored_as,
    stored_shapes,
    to_canonical,
)
from ._names import RULES, bare, exact, is_minkowski_net, matches, plain, wrapped
from ._refusal import Refusal

# Entries that upstream models carry and never read.
_UNUSED = ("point_transforms.", "dropout.", "global_step")
_GIVE_MODEL = "give the model it is meant for, in Python: model=..."


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
    state, mark = read_marked(file)
    layout = _layout(source, state, model, mark)
    targets = model.state_dict()
    matched, prefix = _part(state, targets)
    report = LoadReport(layout)
    slots = slots_of(model)
    made: dict[str, torch.Tensor] = {}
    for ours, theirs in matched.items():
        if theirs != ours:
            report.renamed[ours] = theirs
        slot = slots.get(ours)
        if slot is None and reverse_axes and ours.endswith("kernel"):
            _check.fail("reverse_axes", f"False for {ours}, which is no box of taps", "True")
        value, how = _turned(state[theirs], slot, layout, reverse_axes)
        made[ours] = _shaped(ours, value, targets[ours])
        if how:
            report.permuted[ours] = how
    _account(report, state, matched, prefix, targets)
    if strict and (report.missing or report.unexpected):
        _refuse(report)
    model.load_state_dict({**{k: targets[k] for k in report.missing}, **made}, strict=False)
    report.loaded = len(made)
    return report


def _part(state: State, targets: State) -> tuple[dict[str, str], str]:
    """Our name -> the checkpoint's, and the prefix of the one part that has them."""
    found = matches(state, list(targets))
    if not found:
        return {}, ""
    sized = [
        prefix
        for matched, prefix in found
        if all(state[theirs].numel() == targets[n].numel() for n, theirs in matched.items())
    ]
    if found[0][1] and len(sized) > 1:
        way_out = "hand over the entries of one: {k: v for k, v in read(file).items() if ...}"
        _check.fail("checkpoint", "with one part that fits the model", sized, way_out)
    return next((pair for pair in found if pair[1] in sized[:1]), found[0])


def _layout(source: str, state: State, model: nn.Module | None, mark: str | None) -> str:
    """The layout asked for, or the one that the file says, or else the one detected."""
    if source not in ("auto", *LAYOUTS):
        _check.fail("source", f"'auto' or one of {LAYOUTS}", repr(source))
    if source != "auto":
        return source
    return detect(state, model) if mark is None else mark


def _turned(
    value: torch.Tensor, slot: Slot | None, layout: str, reverse_axes: bool
) -> tuple[torch.Tensor, str]:
    if slot is None:
        return value, ""
    layout = stored_as(layout, value.shape, slot)
    if layout == slot.layout and not reverse_axes and not _moved_pointwise(slot, layout):
        return value, ""
    shapes = stored_shapes(layout, slot.out, slot.size, slot.inner)
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


def _is_pointwise(slot: Slot, layout: str) -> bool:
    """Whether spconv 2.x takes this 1 x 1 kernel for `[in, out]` memory, against its shape."""
    steps = getattr(slot.layer, "stride", [1])
    unit = getattr(slot.layer, "subm", False) or max(steps) == 1
    return layout in ("spconv", "spconv-2.1") and math.prod(slot.size) == 1 and unit


def _moved_pointwise(slot: Slot, layout: str) -> bool:
    """An inverse 1 x 1 layer, which spconv stores turned and sparse3d does not."""
    return _is_pointwise(slot, layout) and not getattr(slot.layer, "stores_transposed", True)


def _shaped(name: str, value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if value.shape == target.shape:
        return value
    if value.squeeze().shape == target.squeeze().shape:
        return value.reshape(target.shape)
    reason = f"{name} must be of shape {list(target.shape)}, got {list(value.shape)}"
    raise Refusal(reason, "build the model with the checkpoint's widths")


def _account(
    report: LoadReport,
    state: State,
    matched: Mapping[str, str],
    prefix: str,
    targets: State,
) -> None:
    used = set(matched.values())
    for name in state:
        if name in used:
            continue
        ours = exact(name)
        other_part = prefix and not ours.startswith(prefix)
        unused = ours.removeprefix(prefix).startswith(_UNUSED)
        (report.ignored if other_part or unused else report.unexpected).append(name)
    optional = ("num_batches_tracked", "max_num_voxels_during_training")
    report.missing = [n for n in targets if n not in matched and not n.endswith(optional)]


def _refuse(report: LoadReport) -> None:
    parts = []
    for kind in ("missing", "unexpected"):
        listed = getattr(report, kind)
        if listed:
            more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
            parts.append(f"{len(listed)} {kind}: {', '.join(listed[:3])}{more}")
    way_out = "build the model with the checkpoint's depth and widths, or pass strict=False"
    raise Refusal(f"checkpoint must be of this model's entries, got {'; '.join(parts)}", way_out)


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
        model: that it is meant for, as a sparse3d model; without it kernels must be cubes, and
            of `spconv-1` and `spconv-2.1` those of 3 axes alone are turned.
        reverse_axes: see `load`.

    Returns:
        What became of every entry.

    Raises:
        ValueError: if the layout is ambiguous, or no model is given and a kernel is no cube, may be
            a channelwise one, or two entries get one name.
    """
    if target is not None and not isinstance(file, Mapping) and _same(file, target):
        _check.fail("target", "another file than the one that is read", target)
    state, mark = read_marked(file)
    source = mark if mark is not None and source == "auto" else source
    if model is not None:
        report = load(model, state, source, reverse_axes=reverse_axes)
        made: State = model.state_dict()
    else:
        report, made = _converted(state, source, reverse_axes)
    if target is not None:
        save(made, target)
    return report


def _same(one: PathLike, other: PathLike) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _converted(
    state: State, source: str, reverse_axes: bool
) -> tuple[LoadReport, dict[str, torch.Tensor]]:
    layout = _layout(source, state, None, None)
    rule = RULES[any(re.match(r"(module\.)*backbone\.encoder\.\d\.\d", n) for n in state)]
    report, made = LoadReport(layout), {}
    wrappers = wrapped(state) if layout == "minkowski" else set()
    form = exact if layout.startswith("spconv") else plain
    kernels = _kernels(state, layout)
    for name, tensor in state.items():
        ours = rule(bare(name) if name in wrappers else form(name))
        if ours.startswith(_UNUSED):
            report.ignored.append(name)
            continue
        value = tensor
        if name in kernels:
            value, how = _cube(name, tensor, layout, reverse_axes)
            report.permuted[ours] = how
        elif _is_flat_bias(name, state):
            value = tensor.reshape(-1)
        if ours in made:
            _check.fail(ours, "the name of one entry", "2; give the model they are meant for")
        if ours != name:
            report.renamed[ours] = name
        made[ours] = value.contiguous()
    report.loaded = len(made)
    return report, made


def _is_flat_bias(name: str, state: State) -> bool:
    """Whether this is a convolution's bias `[1, C]`, not that of a sinusoidal layer."""
    tensor, layer = state[name], name.removesuffix("bias")
    is_row = tensor.ndim == 2 and tensor.shape[0] == 1
    return name.endswith("bias") and is_row and f"{layer}coef" not in state


def _kernels(state: State, layout: str) -> set[str]:
    """Entries that are kernels of sparse convolutions, where shapes can tell."""
    if layout == "spconv":
        return set()
    if layout in ("minkowski", "torchsparse"):
        found = {k: list(v.shape) for k, v in state.items() if k.endswith("kernel")}
        # A sinusoidal layer's matrix is called so too.
        found = {k: s for k, s in found.items() if f"{k.removesuffix('kernel')}coef" not in state}
        volumes = {shape[0] for shape in found.values() if len(shape) == 3} or {8, 27, 125}
        for name, shape in found.items():  # a channelwise kernel is [taps, channels]
            if layout != "minkowski" or len(shape) != 2 or is_minkowski_net(state):
                continue
            if shape[0] in volumes - {1}:
                _check.fail(
                    name, "a 1 x 1 kernel", f"shape {shape}, maybe channelwise", _GIVE_MODEL
                )
        return {name for name, shape in found.items() if len(shape) in (2, 3)}
    sizes = {k: v.ndim for k, v in state.items() if k.endswith("weight") and v.ndim > 2}
    boxes = {name for name, axes in sizes.items() if axes == 5}
    if sizes and not boxes:
        name = next(iter(sizes))
        _check.fail(name, "a kernel of 3 axes", f"{sizes[name]} dimensions", _GIVE_MODEL)
    return boxes


def _cube(
    name: str, tensor: torch.Tensor, layout: str, reverse_axes: bool
) -> tuple[torch.Tensor, str]:
    """One kernel in sparse3d's storage, its sizes told from its shape."""
    if tensor.numel() == 0:
        _check.fail(name, "a kernel with values", f"shape {list(tensor.shape)}")
    if layout in ("minkowski", "torchsparse"):
        volume = tensor.shape[0] if tensor.ndim == 3 else 1
        edge = round(volume ** (1 / 3))
        if edge**3 != volume:
            _check.fail(name, "a cube's kernel where no model is given", f"{volume} taps")
        size = [edge] * 3
    else:
        size = list(tensor.shape[:-2])
        if max(size) > MOST_TAPS:
            wanted = f"a kernel of at most {MOST_TAPS} taps an axis as {layout} stores it"
            _check.fail(name, wanted, list(tensor.shape), _GIVE_MODEL)
    pointwise = layout == "spconv-2.1" and math.prod(size) == 1
    kernel = to_canonical(tensor, layout, size, pointwise=pointwise)
    axes = len(size)
    if reverse_axes:
        kernel = kernel.permute(0, *reversed(range(1, axes + 1)), axes + 1)
    stored = kernel
    if math.prod(size) == 1 and (tensor.ndim == 2 or layout.startswith("spconv")):
        stored = kernel.reshape(kernel.shape[0], -1).t().reshape(kernel.shape)
    return stored, f"{layout} {list(tensor.shape)} -> spconv {list(stored.shape)}"
