"""What every op of the sparse engine has to compute, in plain loops and dictionaries.

Nothing of ``sparse3d`` is imported here: this file and the library were written from the same page
of semantics, and a test compares the two. It is meant to be read, and to be slow.

Coordinates are integer arrays ``[N, 1 + D]``, the batch id first. A site is a tuple of such a row.
The one equation: tap ``t`` pairs input ``p`` with output ``q`` when ``p = q*stride - padding +
t*dilation``, axis by axis, within one sample.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Site = tuple[int, ...]
Array = npt.NDArray[Any]
Pairs = list[list[tuple[int, int]]]


# ---------------------------------------------------------------------------------------- geometry


def taps(kernel_size: Sequence[int]) -> list[Site]:
    """All taps of a kernel, row-major: the last axis runs fastest."""
    return list(itertools.product(*(range(size) for size in kernel_size)))


def input_site(
    q: Site, tap: Site, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Site:
    """The input that tap ``tap`` of output ``q`` reads: the equation, read from the right."""
    batch, *cell = q
    moved = (
        c * s - p + t * d
        for c, s, p, t, d in zip(cell, stride, padding, tap, dilation, strict=True)
    )
    return (batch, *moved)


def output_site(
    p: Site, tap: Site, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Site | None:
    """The output that reads input ``p`` through tap ``tap``, or None where strides step over it."""
    batch, *cell = p
    reached = []
    for c, s, pad, t, d in zip(cell, stride, padding, tap, dilation, strict=True):
        numerator = c + pad - t * d
        if numerator % s:
            return None
        reached.append(numerator // s)
    return (batch, *reached)


def output_shape(
    shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Grid of a strided layer, as in dense convolution."""
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(shape, kernel_size, stride, padding, dilation, strict=True)
    ]


def transposed_output_shape(
    shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """Grid of a transposed layer, as in dense transposed convolution."""
    return [
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, k, s, p, d, o in zip(
            shape, kernel_size, stride, padding, dilation, output_padding, strict=True
        )
    ]


def submanifold_padding(kernel_size: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """The padding that centres an odd kernel on its output."""
    return [d * (k // 2) for k, d in zip(kernel_size, dilation, strict=True)]


# ------------------------------------------------------------------------------------- coordinates


def sites(coords: Array) -> list[Site]:
    """Rows of a coordinate array as tuples of Python integers."""
    return [tuple(int(v) for v in row) for row in np.asarray(coords).tolist()]


def as_coords(rows: Sequence[Site], ndim: int) -> Array:
    """Tuples back to an int32 array ``[N, 1 + ndim]``, empty included."""
    return np.array(rows, dtype=np.int32).reshape(len(rows), 1 + ndim)


def owners(rows: Iterable[Site]) -> dict[Site, int]:
    """Site to row; of duplicates the lowest row owns the site."""
    table: dict[Site, int] = {}
    for row, site in enumerate(rows):
        table.setdefault(site, row)
    return table


def lookup(coords: Array, queries: Array) -> Array:
    """Row of every query among ``coords``, -1 where absent."""
    table = owners(sites(coords))
    return np.array([table.get(q, -1) for q in sites(queries)], dtype=np.int32)


def by_batch(found: Iterable[Site]) -> list[Site]:
    """Distinct sites: by batch id, then in the order they first appear."""
    first = list(dict.fromkeys(found))
    return sorted(first, key=lambda site: site[0])  # sorted() is stable


def unique(coords: Array) -> tuple[Array, Array]:
    """First row of every distinct site, and for every row the index of its site."""
    rows = sites(coords)
    table = owners(rows)
    order = {site: index for index, site in enumerate(by_batch(rows))}
    first = np.array([table[site] for site in order], dtype=np.int64)
    inverse = np.array([order[site] for site in rows], dtype=np.int64)
    return first, inverse


# --------------------------------------------------------------------------------------- kernel map


@dataclass
class Map:
    """Pairs (input row, output row) of every tap, ascending output row, and the output sites."""

    pairs: Pairs
    out: list[Site]

    @property
    def src(self) -> Array:
        """Input rows, tap after tap."""
        return np.array([i for tap in self.pairs for i, _ in tap], dtype=np.int32)

    @property
    def dst(self) -> Array:
        """Output rows, tap after tap."""
        return np.array([o for tap in self.pairs for _, o in tap], dtype=np.int32)

    @property
    def splits(self) -> Array:
        """Where each tap begins among the pairs, and where the last one ends."""
        return np.cumsum([0, *(len(tap) for tap in self.pairs)]).astype(np.int64)

    @property
    def total(self) -> int:
        """Number of pairs over all taps."""
        return sum(len(tap) for tap in self.pairs)

    def transposed(self) -> Map:
        """The same pairs with the roles swapped, under the same taps (``out`` is left empty)."""
        return Map([[(o, i) for i, o in tap] for tap in self.pairs], [])


def _inside(site: Site, shape: Sequence[int] | None) -> bool:
    return shape is None or all(0 <= c < n for c, n in zip(site[1:], shape, strict=True))


def given_map(
    coords: Array,
    out_coords: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Map:
    """Rule *given*: every handed output looks through every tap."""
    table = owners(sites(coords))
    out = sites(out_coords)
    pairs: Pairs = []
    for tap in taps(kernel_size):
        seen = ((input_site(q, tap, stride, padding, dilation), row) for row, q in enumerate(out))
        pairs.append([(table[p], row) for p, row in seen if p in table])
    return Map(pairs, out)


def submanifold_map(coords: Array, kernel_size: Sequence[int], dilation: Sequence[int]) -> Map:
    """Outputs are the inputs, the kernel is centred, stride 1."""
    padding = submanifold_padding(kernel_size, dilation)
    return given_map(coords, coords, kernel_size, [1] * len(kernel_size), padding, dilation)


def footprint_map(
    coords: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_shape: Sequence[int] | None,
) -> Map:
    """Rule *footprint*: every output inside the grid that some input reaches."""
    rows = sites(coords)
    reached = (
        output_site(p, tap, stride, padding, dilation) for p in rows for tap in taps(kernel_size)
    )
    out = by_batch(q for q in reached if q is not None and _inside(q, out_shape))
    index = {site: row for row, site in enumerate(out)}
    pairs: Pairs = []
    for tap in taps(kernel_size):
        found = []
        for row, p in enumerate(rows):
            q = output_site(p, tap, stride, padding, dilation)
            if q in index:
                found.append((row, index[q]))
        pairs.append(sorted(found, key=lambda pair: (pair[1], pair[0])))
    return Map(pairs, out)


def generative_map(
    coords: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_shape: Sequence[int] | None,
) -> Map:
    """Rule *generative*: every fine site a transposed layer reaches (inside the grid, if any)."""
    rows = sites(coords)
    # The roles are swapped: our input is the coarse site q of the equation, our output the fine p.
    reached = (
        input_site(q, tap, stride, padding, dilation) for q in rows for tap in taps(kernel_size)
    )
    out = by_batch(p for p in reached if _inside(p, out_shape))
    index = {site: row for row, site in enumerate(out)}
    pairs: Pairs = []
    for tap in taps(kernel_size):
        found = []
        for row, q in enumerate(rows):
            p = input_site(q, tap, stride, padding, dilation)
            if p in index:
                found.append((row, index[p]))
        pairs.append(sorted(found, key=lambda pair: (pair[1], pair[0])))
    return Map(pairs, out)


def floor_map(
    coords: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Map:
    """Rule *floor*: outputs are the distinct ``floor(p / stride)``, whatever the kernel."""
    cells = [(p[0], *(c // s for c, s in zip(p[1:], stride, strict=True))) for p in sites(coords)]
    out = as_coords(by_batch(cells), len(kernel_size))
    return given_map(coords, out, kernel_size, stride, padding, dilation)


# -------------------------------------------------------------------------------------- convolution


def convolve(features: Array, weight: Array, pairs: Pairs, num_out: int, groups: int = 1) -> Array:
    """``out[dst] += W[tap] @ x[src]`` over all pairs; weight ``[C_out, K, C_in / groups]``."""
    x, w = np.asarray(features, np.float64), np.asarray(weight, np.float64)
    c_out, _, width = w.shape
    step = c_out // groups
    out = np.zeros((num_out, c_out))
    for tap, rows in enumerate(pairs):
        for src, dst in rows:
            for g in range(groups):
                o = slice(g * step, (g + 1) * step)
                out[dst, o] += w[o, tap] @ x[src, g * width : (g + 1) * width]
    return out


def convolve_input_grad(
    grad: Array, weight: Array, pairs: Pairs, num_in: int, groups: int = 1
) -> Array:
    """Gradient of :func:`convolve` in its features."""
    g_out, w = np.asarray(grad, np.float64), np.asarray(weight, np.float64)
    c_out, _, width = w.shape
    step = c_out // groups
    out = np.zeros((num_in, width * groups))
    for tap, rows in enumerate(pairs):
        for src, dst in rows:
            for g in range(groups):
                o = slice(g * step, (g + 1) * step)
                out[src, g * width : (g + 1) * width] += g_out[dst, o] @ w[o, tap]
    return out


def convolve_weight_grad(features: Array, grad: Array, pairs: Pairs, groups: int = 1) -> Array:
    """Gradient of :func:`convolve` in its weight."""
    x, g_out = np.asarray(features, np.float64), np.asarray(grad, np.float64)
    width, step = x.shape[1] // groups, g_out.shape[1] // groups
    out = np.zeros((g_out.shape[1], len(pairs), width))
    for tap, rows in enumerate(pairs):
        for src, dst in rows:
            for g in range(groups):
                o = slice(g * step, (g + 1) * step)
                out[o, tap] += np.outer(g_out[dst, o], x[src, g * width : (g + 1) * width])
    return out


def activate(values: Array, activation: str, alpha: float) -> Array:
    """The activations a fused convolution may end in."""
    if activation == "none":
        return values
    if activation == "relu":
        return np.where(values > 0, values, 0.0)
    if activation == "leaky_relu":
        return np.where(values > 0, values, alpha * values)
    if activation == "sigmoid":
        result: Array = 1.0 / (1.0 + np.exp(-values))
        return result
    raise ValueError(f"activation must be none, relu, leaky_relu or sigmoid, got {activation}")


# ------------------------------------------------------------------------------------------ pooling


def pool_sum(features: Array, pairs: Pairs, num_out: int) -> Array:
    """Sum of the inputs of every output; 0 without any."""
    x = np.asarray(features, np.float64)
    out = np.zeros((num_out, x.shape[1]))
    for rows in pairs:
        for src, dst in rows:
            out[dst] += x[src]
    return out


def pool_mean(features: Array, pairs: Pairs, num_out: int) -> Array:
    """Mean over the inputs that are present, not over the kernel's volume; 0 without any."""
    counts = np.zeros(num_out)
    for rows in pairs:
        for _, dst in rows:
            counts[dst] += 1
    return pool_sum(features, pairs, num_out) / np.maximum(counts, 1)[:, None]


def pool_max(features: Array, pairs: Pairs, num_out: int) -> tuple[Array, Array]:
    """Maximum and the input row it came from; NaN wins, of equals the lowest tap."""
    x = np.asarray(features, np.float64)
    channels = x.shape[1]
    out = np.zeros((num_out, channels))
    arg = np.full((num_out, channels), -1, dtype=np.int32)
    for rows in pairs:
        for src, dst in rows:
            for c in range(channels):
                best, value = out[dst, c], x[src, c]
                if arg[dst, c] < 0 or (
                    not math.isnan(best) and (math.isnan(value) or value > best)
                ):
                    out[dst, c], arg[dst, c] = value, src
    return out, arg


def pool_max_grad(grad: Array, arg: Array, num_in: int) -> Array:
    """Every output hands its gradient to the one input that won."""
    g_out = np.asarray(grad, np.float64)
    out = np.zeros((num_in, g_out.shape[1]))
    for row, channel in itertools.product(*map(range, g_out.shape)):
        if arg[row, channel] >= 0:
            out[arg[row, channel], channel] += g_out[row, channel]
    return out


# ----------------------------------------------------------------------------------------- segments


def segment_sum(values: Array, ids: Array, num: int) -> Array:
    """Sum of the rows of every segment; 0 for an empty one."""
    x = np.asarray(values, np.float64)
    out = np.zeros((num, x.shape[1]))
    for row, segment in enumerate(ids.tolist()):
        out[segment] += x[row]
    return out


def segment_mean(values: Array, ids: Array, num: int) -> Array:
    """Mean of the rows of every segment; 0 for an empty one."""
    counts = np.bincount(np.asarray(ids, np.int64), minlength=num)[:num]
    return segment_sum(values, ids, num) / np.maximum(counts, 1)[:, None]


def segment_max(values: Array, ids: Array, num: int) -> tuple[Array, Array]:
    """Maximum of every segment and its row (the lowest of equals, NaN wins); empty: 0 and -1."""
    out, arg = pool_max(values, [[(row, s) for row, s in enumerate(np.asarray(ids).tolist())]], num)
    return out, arg.astype(np.int64)


# ----------------------------------------------------------------------------- points and voxels


def quantize(
    points: Array, voxel_size: Sequence[float], origin: Sequence[float], rounding: str
) -> Array:
    """Voxel of every point in float32 arithmetic: subtract, divide, then floor or round."""
    moved = np.asarray(points, np.float32) - np.asarray(origin, np.float32)
    cells = moved / np.asarray(voxel_size, np.float32)
    cells = np.floor(cells) if rounding == "floor" else np.round(cells)
    return cells.astype(np.int32)


def trilinear(coords: Array, points: Array) -> tuple[Array, Array]:
    """Rows and weights of the ``2^D`` corners of every point; absent corners keep theirs."""
    table = owners(sites(coords))
    position = np.asarray(points, np.float64)
    ndim = position.shape[1] - 1
    corners = list(itertools.product((0, 1), repeat=ndim))
    rows = np.full((len(position), len(corners)), -1, dtype=np.int32)
    weights = np.zeros((len(position), len(corners)))
    for i, point in enumerate(position):
        low = [math.floor(v) for v in point[1:]]
        part = [v - b for v, b in zip(point[1:], low, strict=True)]
        for j, corner in enumerate(corners):
            site = (int(point[0]), *(b + c for b, c in zip(low, corner, strict=True)))
            rows[i, j] = table.get(site, -1)
            weights[i, j] = math.prod(
                f if c else 1.0 - f for f, c in zip(part, corner, strict=True)
            )
    return rows, weights


def interpolate(features: Array, rows: Array, weights: Array, renormalize: bool = False) -> Array:
    """Weighted sum of the corners that are present, divided by their weights if asked."""
    x, w = np.asarray(features, np.float64), np.asarray(weights, np.float64)
    out = np.zeros((len(rows), x.shape[1]))
    for i, corners in enumerate(np.asarray(rows).tolist()):
        present = [(row, w[i, j]) for j, row in enumerate(corners) if row >= 0]
        total = sum(weight for _, weight in present) if renormalize else 1.0
        for row, weight in present:
            if total > 0:
                out[i] += weight / total * x[row]
    return out


def interpolate_grad(grad: Array, rows: Array, weights: Array, num: int) -> Array:
    """Gradient of :func:`interpolate` (not renormalised) in its features."""
    g_out, w = np.asarray(grad, np.float64), np.asarray(weights, np.float64)
    out = np.zeros((num, g_out.shape[1]))
    for i, corners in enumerate(np.asarray(rows).tolist()):
        for j, row in enumerate(corners):
            if row >= 0:
                out[row] += w[i, j] * g_out[i]
    return out


def nearest(coords: Array, points: Array) -> Array:
    """Row of the voxel each point lies in (floor), -1 where there is none."""
    return lookup(coords, np.floor(np.asarray(points, np.float64)).astype(np.int32))


# ------------------------------------------------------------------------------------ whole tensors


def union_add(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Sum of (coords, features) with different sites: all sites, absent ones counting as 0."""
    coords = np.concatenate([c for c, _ in parts])
    features = np.concatenate([np.asarray(f, np.float64) for _, f in parts])
    return coalesce(coords, features, "sum")


def coalesce(coords: Array, features: Array, reduce: str) -> tuple[Array, Array]:
    """One row for every site: the sum, mean, max or first of the rows that share it."""
    first, inverse = unique(coords)
    x = np.asarray(features, np.float64)
    if reduce == "sum":
        merged = segment_sum(x, inverse, len(first))
    elif reduce == "mean":
        merged = segment_mean(x, inverse, len(first))
    elif reduce == "max":
        merged = segment_max(x, inverse, len(first))[0]
    elif reduce == "first":
        merged = x[first]
    else:
        raise ValueError(f"reduce must be sum, mean, max or first, got {reduce}")
    return np.asarray(coords)[first], merged


def to_dense(features: Array, coords: Array, batch_size: int, shape: Sequence[int]) -> Array:
    """Dense ``[B, *shape, C]``; the lowest of duplicate rows is the one that shows."""
    out = np.zeros((batch_size, *shape, np.asarray(features).shape[1]), np.asarray(features).dtype)
    for site, row in owners(sites(coords)).items():
        out[site] = features[row]
    return out


def from_dense(dense: Array, coords: Array) -> Array:
    """The rows of a dense ``[B, *shape, C]`` at the given sites."""
    return np.array([dense[site] for site in sites(coords)], dtype=dense.dtype).reshape(
        len(coords), dense.shape[-1]
    )


def match_rows(coords: Array, expected: Array) -> Array:
    """For every row of ``expected`` the row of ``coords`` with that site; raises if sets differ."""
    rows = lookup(coords, expected)
    if len(coords) != len(expected) or (rows < 0).any() or len(set(rows.tolist())) != len(rows):
        raise AssertionError(
            f"site sets differ: {len(coords)} rows against {len(expected)}, "
            f"{int((rows < 0).sum())} expected sites are absent"
        )
    return rows


def shifted(coords: Array, offset: Sequence[int]) -> Array:
    """The same sites moved by ``offset`` along the spatial axes."""
    return np.asarray(coords) + np.array([0, *offset], dtype=np.int32)


def neighbour_table(pairs: Pairs, num_out: int) -> Array:
    """``[M, K]``: the input row each output reads at each tap, -1 where none."""
    table = np.full((num_out, len(pairs)), -1, dtype=np.int32)
    for tap, rows in enumerate(pairs):
        for src, dst in rows:
            table[dst, tap] = src
    return table
