"""A model as a function of feature rows and kernel maps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .. import _check
from .._registry import backend_for
from ..geometry import Geometry
from ..kernel_map import Coordinates, KernelMap
from ..nn._preparation import inferring, prepare
from ..tensor import SparseConvTensor

__all__ = ["export_program", "feature_inputs"]

Inputs = dict[str, torch.Tensor]


def _levels(root: Coordinates) -> Iterator[Coordinates]:
    """A set of sites and all that were made from it, parents first."""
    yield root
    for target in root._targets.values():
        yield from _levels(target)


def _maps(root: Coordinates) -> Iterator[tuple[int, Hashable, KernelMap]]:
    """Level, key and map of everything that was built; a pointwise layer's map is no input."""
    for level, sites in enumerate(_levels(root)):
        for key, pairs in sites._maps.items():
            if key != "identity":
                yield level, key, pairs


def _prepared(model: nn.Module, x: SparseConvTensor) -> SparseConvTensor:
    """`x` on a set of sites of its own, with the maps that `model` needs and no others."""
    if not isinstance(x, SparseConvTensor):
        _check.fail_type("x", "a SparseConvTensor", type(x).__name__)
    sites = x.sites("export")
    fresh = Coordinates(sites.indices, sites.spatial_shape, sites.batch_size)
    if sites.known_distinct():
        fresh.trust_distinct()
    return prepare(model, x.on_sites(x.features, fresh, {}))


def _named(x: SparseConvTensor) -> Inputs:
    root = x.coordinates
    named = {"features": x.features}
    named |= {f"sites{level}": sites.indices for level, sites in enumerate(_levels(root))}
    for number, (_, _, pairs) in enumerate(_maps(root)):
        named |= {
            f"map{number}_src": pairs.src,
            f"map{number}_dst": pairs.dst,
            f"map{number}_splits": pairs.splits,
        }
    return named


def feature_inputs(model: nn.Module, x: SparseConvTensor) -> Inputs:
    """What the exported feature path of `model` takes for the scene `x`.

    Args:
        model: the model that was exported; only its geometry is read.
        x: a scene of any size, with the number of axes and channels of the example.

    Returns:
        Tensors by name, in the order of the exported inputs.
    """
    return _named(_prepared(model, x))


class _FeaturePath(nn.Module):
    """A model as a function of named tensors: no coordinate is looked at, no map is built."""

    def __init__(self, model: nn.Module, x: SparseConvTensor) -> None:
        super().__init__()
        self.model = model
        self._example = _prepared(model, x)

    def example_inputs(self) -> Inputs:
        """The inputs of the example scene."""
        return _named(self._example)

    def forward(self, inputs: Mapping[str, torch.Tensor]) -> Any:
        """What the model returns, with sparse tensors replaced by their feature rows."""
        root = self._rebuilt(inputs)
        x = self._example.on_sites(inputs["features"], root, {})
        return _dense_parts(self.model(x))

    def _rebuilt(self, inputs: Mapping[str, torch.Tensor]) -> Coordinates:
        """The example's tree of sites and maps over the tensors of `inputs`."""
        old = self._example.coordinates
        levels = list(_levels(old))
        made = [
            Coordinates(inputs[f"sites{level}"], sites.spatial_shape, sites.batch_size)
            for level, sites in enumerate(levels)
        ]
        place = {id(sites): level for level, sites in enumerate(levels)}
        for sites, copy in zip(levels, made, strict=True):
            copy._targets = {key: made[place[id(child)]] for key, child in sites._targets.items()}
        for number, (level, key, pairs) in enumerate(_maps(old)):
            out = made[level]._targets.get(key, made[level])
            parts = (inputs[f"map{number}_{part}"] for part in ("src", "dst", "splits"))
            made[level]._maps[key] = _unplanned(
                *parts, made[level].indices, out.indices, pairs.geometry, pairs.mirrored
            )
        for sites, copy in zip(levels, made, strict=True):
            if "identity" in sites._maps:
                copy._maps["identity"] = _identity(copy.indices, sites._maps["identity"].geometry)
        return made[0]


def _unplanned(src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, *rest: Any) -> KernelMap:
    """A map without a backend's plan: what a plan holds is not the same for all scenes."""
    made = KernelMap(src, dst, splits, *rest)
    made._plans.update({(backend_for(src.device), side): [] for side in (False, True)})
    return made


def _identity(indices: torch.Tensor, geometry: Geometry) -> KernelMap:
    """`Coordinates.identity`, with a number of rows that the program does not know."""
    rows = torch.arange(indices.shape[0], dtype=torch.int32, device=indices.device)
    splits = torch.arange(2, dtype=torch.int64) * indices.shape[0]
    return _unplanned(rows, rows, splits, indices, indices, geometry, True)


def _dense_parts(value: Any) -> Any:
    if isinstance(value, SparseConvTensor):
        return value.features
    if isinstance(value, (tuple, list)):
        return type(value)(map(_dense_parts, value))
    if isinstance(value, dict):
        return {key: _dense_parts(part) for key, part in value.items()}
    return value


def export_program(model: nn.Module, x: SparseConvTensor) -> torch.export.ExportedProgram:
    """The feature path of `model` as one `torch.export` program for scenes of every size.

    Args:
        model: a module whose sparse layers do not choose sites by feature values, in any mode: its
            inference is what is exported.
        x: an example scene with two sites or more at every level, and as many pairs in every map.
            Its axes, channels and layers are what other scenes share; grid and batch size may
            differ unless the model itself reads them.

    Returns:
        A program whose module takes one argument, what `feature_inputs` gives.

    Raises:
        TypeError: if `x` is not a SparseConvTensor.
        ValueError: if the example is too small: a size of 0 or 1 would become a constant.
    """
    path = _FeaturePath(model, x)
    inputs = path.example_inputs()
    for name, value in inputs.items():
        if not name.endswith("splits") and value.shape[0] < 2:
            way_out = "export with a larger scene"
            _check.fail(f"x: {name}", "of two rows or more at every level", len(value), way_out)
    auto = torch.export.Dim.AUTO
    rows = {name: {} if name.endswith("splits") else {0: auto} for name in inputs}
    with torch.no_grad(), inferring(model):
        return torch.export.export(path, (inputs,), dynamic_shapes=(rows,), strict=False)
