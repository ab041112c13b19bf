"""Who solves a recorded problem: the oracle, or the ops of ``sparse3d``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import oracle
from golden.reader import FLOOR, FOOTPRINT, GENERATIVE, INVERSE, SUBM, Layer


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
