"""Who solves a recorded problem: the oracle, or the ops of ``sparse3d``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import oracle
import torch
from golden.reader import FLOOR, FOOTPRINT, GENERATIVE, INVERSE, SUBM, Layer

from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates, KernelMap
from sparse3d.ops.conv import conv
from sparse3d.ops.coordinates import unique
from sparse3d.ops.pool import max_pool, mean_pool, sum_pool
from sparse3d.ops.segment import reduce_segments
from sparse3d.ops.voxelize import devoxelize


@dataclass(frozen=True)
class Answer:
    """What a layer gives: output sites, features, and gradients where asked for."""

    coords: oracle.Array
    features: oracle.Array
    grad_in: oracle.Array | None = None
    grad_weight: oracle.Array | None = None


class Engine(Protocol):
    """The operations that the recorded problems consist of."""

    def sites(self, layer: Layer) -> oracle.Array:
        """Output coordinates of a layer."""

    def conv(
        self,
        layer: Layer,
        features: oracle.Array,
        weight: oracle.Array,
        groups: int,
        grad: oracle.Array | None,
    ) -> Answer:
        """A convolution and, for ``grad`` in the order of :meth:`sites`, its gradients."""

    def pool(
        self, layer: Layer, kind: str, features: oracle.Array, grad: oracle.Array | None
    ) -> Answer:
        """A sum, mean or max pool and its gradient."""

    def unique(self, coords: oracle.Array) -> tuple[oracle.Array, oracle.Array]:
        """First rows and inverse."""

    def segment(self, kind: str, values: oracle.Array, ids: oracle.Array, num: int) -> oracle.Array:
        """Sum, mean or max over segments."""

    def interpolate(
        self,
        coords: oracle.Array,
        features: oracle.Array,
        points: oracle.Array,
        grad: oracle.Array | None,
    ) -> Answer:
        """Trilinear interpolation and its gradient; not renormalised."""


def _oracle_map(layer: Layer) -> oracle.Map:
    numbers = layer.numbers
    if layer.rule == SUBM:
        return oracle.submanifold_map(layer.coords, layer.kernel_size, layer.dilation)
    if layer.rule == FOOTPRINT:
        return oracle.footprint_map(layer.coords, *numbers, layer.out_shape)
    if layer.rule == FLOOR:
        return oracle.floor_map(layer.coords, *numbers)
    if layer.rule == GENERATIVE:
        return oracle.generative_map(layer.coords, *numbers, layer.out_shape)
    if layer.rule == INVERSE:
        found = oracle.given_map(layer.out_coords, layer.coords, *numbers)
        return oracle.Map(found.transposed().pairs, oracle.sites(layer.out_coords))
    return oracle.given_map(layer.coords, layer.out_coords, *numbers)


class OracleEngine:
    """Loops and dictionaries, float64."""

    def sites(self, layer: Layer) -> oracle.Array:
        return oracle.as_coords(_oracle_map(layer).out, len(layer.kernel_size))

    def conv(
        self,
        layer: Layer,
        features: oracle.Array,
        weight: oracle.Array,
        groups: int,
        grad: oracle.Array | None,
    ) -> Answer:
        found = _oracle_map(layer)
        pairs = found.pairs
        out = oracle.convolve(features, weight, pairs, len(found.out), groups)
        at = oracle.as_coords(found.out, len(layer.kernel_size))
        if grad is None:
            return Answer(at, out)
        return Answer(
            at,
            out,
            oracle.convolve_input_grad(grad, weight, pairs, len(features), groups),
            oracle.convolve_weight_grad(features, grad, pairs, groups),
        )

    def pool(
        self, layer: Layer, kind: str, features: oracle.Array, grad: oracle.Array | None
    ) -> Answer:
        found = _oracle_map(layer)
        at = oracle.as_coords(found.out, len(layer.kernel_size))
        if kind == "max":
            out, arg = oracle.pool_max(features, found.pairs, len(found.out))
            back = None if grad is None else oracle.pool_max_grad(grad, arg, len(features))
            return Answer(at, out, back)
        reduce = oracle.pool_sum if kind == "sum" else oracle.pool_mean
        out = reduce(features, found.pairs, len(found.out))
        if grad is None:
            return Answer(at, out)
        if kind == "mean":
            counts = (oracle.neighbour_table(found.pairs, len(at)) >= 0).sum(1)
            grad = grad / np.maximum(counts, 1)[:, None]
        return Answer(at, out, oracle.pool_sum(grad, found.transposed().pairs, len(features)))

    def unique(self, coords: oracle.Array) -> tuple[oracle.Array, oracle.Array]:
        return oracle.unique(coords)

    def segment(self, kind: str, values: oracle.Array, ids: oracle.Array, num: int) -> oracle.Array:
        if kind == "max":
            return oracle.segment_max(values, ids, num)[0]
        reduce = oracle.segment_sum if kind == "sum" else oracle.segment_mean
        return reduce(values, ids, num)

    def interpolate(
        self,
        coords: oracle.Array,
        features: oracle.Array,
        points: oracle.Array,
        grad: oracle.Array | None,
    ) -> Answer:
        rows, weights = oracle.trilinear(coords, points)
        out = oracle.interpolate(features, rows, weights)
        back = None if grad is None else oracle.interpolate_grad(grad, rows, weights, len(coords))
        return Answer(points, out, back)


class OpsEngine:
    """The ops of ``sparse3d``, float32, on whatever backend is in force."""

    def _map(self, layer: Layer) -> KernelMap:
        geometry = Geometry(*layer.numbers)
        coords, out = torch.from_numpy(layer.coords), torch.from_numpy(layer.out_coords)
        sites = Coordinates(coords, None, 1 << 20)
        if layer.rule == SUBM:
            return sites.submanifold(layer.kernel_size, layer.dilation)
        if layer.rule == FOOTPRINT:
            return sites.footprint(geometry, layer.out_shape)[0]
        if layer.rule == FLOOR:
            return sites.floor(geometry, None)[0]
        if layer.rule == GENERATIVE:
            return sites.footprint(geometry, layer.out_shape, transposed=True)[0]
        if layer.rule == INVERSE:
            return Coordinates(out, None, 1 << 20).given(sites, geometry).transposed()
        return sites.given(Coordinates(out, None, 1 << 20), geometry)

    def sites(self, layer: Layer) -> oracle.Array:
        return self._map(layer).out_indices.numpy()

    def conv(
        self,
        layer: Layer,
        features: oracle.Array,
        weight: oracle.Array,
        groups: int,
        grad: oracle.Array | None,
    ) -> Answer:
        found = self._map(layer)
        x = torch.from_numpy(features).requires_grad_()
        w = torch.from_numpy(np.ascontiguousarray(weight)).requires_grad_()
        out = conv(x, w, found, groups=groups)
        return self._answer(found, out, grad, x, w)

    def pool(
        self, layer: Layer, kind: str, features: oracle.Array, grad: oracle.Array | None
    ) -> Answer:
        found = self._map(layer)
        x = torch.from_numpy(features).requires_grad_()
        out = {"sum": sum_pool, "mean": mean_pool, "max": max_pool}[kind](x, found)
        return self._answer(found, out, grad, x)

    def unique(self, coords: oracle.Array) -> tuple[oracle.Array, oracle.Array]:
        first, inverse = unique(torch.from_numpy(coords))
        return first.numpy(), inverse.numpy()

    def segment(self, kind: str, values: oracle.Array, ids: oracle.Array, num: int) -> oracle.Array:
        return reduce_segments(torch.from_numpy(values), torch.from_numpy(ids), num, kind).numpy()

    def interpolate(
        self,
        coords: oracle.Array,
        features: oracle.Array,
        points: oracle.Array,
        grad: oracle.Array | None,
    ) -> Answer:
        x = torch.from_numpy(features).requires_grad_()
        out = devoxelize(x, coords=torch.from_numpy(coords), points=torch.from_numpy(points))
        back = None if grad is None else torch.autograd.grad(out, x, torch.from_numpy(grad))[0]
        return Answer(points, out.detach().numpy(), None if back is None else back.numpy())

    @staticmethod
    def _answer(
        found: KernelMap, out: torch.Tensor, grad: oracle.Array | None, *leaves: torch.Tensor
    ) -> Answer:
        at, values = found.out_indices.numpy(), out.detach().numpy()
        if grad is None:
            return Answer(at, values)
        upstream = torch.from_numpy(grad.astype(np.float32))
        gradients = torch.autograd.grad(out, leaves, upstream)
        return Answer(at, values, *(gradient.numpy() for gradient in gradients))
