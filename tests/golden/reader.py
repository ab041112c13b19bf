"""Peers' recorded layers, restated in our terms: rule, geometry, weight ``[C_out, K, C_in]``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import oracle

FOLDER = Path(__file__).parent / "vectors"

Axes = tuple[int, ...]

SUBM, FOOTPRINT, FLOOR, GENERATIVE, GIVEN, INVERSE = (
    "submanifold",
    "footprint",
    "floor",
    "generative",
    "given",
    "inverse",
)


def names(prefix: str) -> list[str]:
    """Names of the recorded files that begin with ``prefix``."""
    return sorted(path.stem for path in FOLDER.glob(f"{prefix}*.npz"))


@dataclass(frozen=True)
class Vector:
    """One recorded file."""

    name: str

    @cached_property
    def _file(self) -> dict[str, Any]:
        with np.load(FOLDER / f"{self.name}.npz") as file:
            return {key: file[key] for key in file.files}

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The peer's description of the layer."""
        loaded: dict[str, Any] = json.loads(str(self._file["meta"]))
        return loaded

    def __getitem__(self, key: str) -> oracle.Array:
        array: oracle.Array = self._file[key]
        return array

    def __contains__(self, key: str) -> bool:
        return key in self._file


@dataclass(frozen=True)
class Layer:
    """A convolution or pool in our terms; coordinates in index space of each level."""

    rule: str
    coords: oracle.Array
    out_coords: oracle.Array
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out_shape: tuple[int, ...] | None = None

    @property
    def numbers(self) -> tuple[Axes, Axes, Axes, Axes]:
        """Kernel size, stride, padding, dilation."""
        return self.kernel_size, self.stride, self.padding, self.dilation


def _spread(value: Any, ndim: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (int(value),) * ndim


def _contract(coords: oracle.Array, stride: Sequence[int]) -> oracle.Array:
    """Coordinates in units of the level: absolute ones divided by the level's stride."""
    divided: oracle.Array = coords.copy()
    divided[:, 1:] //= np.array(stride, np.int32)
    return divided


# ------------------------------------------------------------------------------------------- spconv


def spconv_layer(vector: Vector) -> Layer:
    """A recorded spconv layer (conv, transposed, inverse, pool)."""
    meta = vector.meta
    numbers = [_spread(meta[k], meta["ndim"]) for k in ("kernel", "stride", "padding", "dilation")]
    rule = {"subm": SUBM, "transpose": GENERATIVE, "inverse": INVERSE}.get(meta["op"], FOOTPRINT)
    if rule == SUBM:
        numbers[2] = tuple(oracle.submanifold_padding(numbers[0], numbers[3]))
    kernel, stride, padding, dilation = numbers
    return Layer(
        rule,
        vector["in_coords"],
        vector["out_coords"],
        kernel,
        stride,
        padding,
        dilation,
        tuple(meta["out_shape"]),
    )


def spconv_weight(vector: Vector, key: str = "weight") -> oracle.Array:
    """A recorded weight (or its gradient) as ``[C_out, K, C_in]``."""
    stored: oracle.Array = vector[key]
    c_out, c_in = stored.shape[0], stored.shape[-1]
    if vector.name == "spconv_subm3d_k1":  # the peer reads this memory as an [in, out] matrix
        stored = stored.reshape(c_in, c_out).T
    weight: oracle.Array = stored.reshape(c_out, -1, c_in)
    return weight


# ----------------------------------------------------------------- MinkowskiEngine and torchsparse


def _centred(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Odd kernels are centred, even ones start at their output: both peers up to size 3."""
    return tuple(d * (k // 2) if k % 2 else 0 for k, d in zip(kernel, dilation, strict=True))


def minkowski_layer(vector: Vector) -> Layer:
    """A recorded MinkowskiEngine convolution or pool."""
    meta = vector.meta
    ndim = vector["in_coords"].shape[1] - 1
    kernel = _spread(meta.get("kernel", 3), ndim)
    stride = _spread(meta.get("stride", 1), ndim)
    dilation = _spread(meta.get("dilation", 1), ndim)
    rule = {"transpose": INVERSE, "generative": GENERATIVE}.get(meta["op"], FLOOR)
    if "expand_coordinates" in meta.get("kw", {}):
        rule = FOOTPRINT
    upwards = rule in (INVERSE, GENERATIVE)
    return Layer(
        rule,
        _contract(vector["in_coords"], stride if upwards else (1,) * ndim),
        _contract(vector["out_coords"], (1,) * ndim if upwards else stride),
        kernel,
        stride,
        _centred(kernel, dilation),
        dilation,
    )


def torchsparse_layer(vector: Vector) -> Layer:
    """A recorded torchsparse convolution."""
    meta = vector.meta
    kernel, stride = tuple(meta["kernel"]), tuple(meta["stride"])
    dilation = (int(meta["dilation"]),) * 3
    upwards = meta["op"] == "transpose"
    return Layer(
        INVERSE if upwards else FLOOR,
        _contract(vector["in_coords"], stride if upwards else (1, 1, 1)),
        _contract(vector["out_coords"], (1, 1, 1) if upwards else stride),
        kernel,
        stride,
        _centred(kernel, dilation),
        dilation,
    )


def tap_order(vector: Vector, layer: Layer) -> list[int]:
    """For every kernel entry of the peer, in its order, our flat tap index."""
    if "offsets" in vector.meta:
        offsets = [tuple(np.ravel(offset).tolist()) for offset in vector.meta["offsets"]]
    else:  # MinkowskiEngine: first spatial axis fastest
        offsets = [
            tuple(
                t * d - p for t, d, p in zip(tap[::-1], layer.dilation, layer.padding, strict=True)
            )
            for tap in oracle.taps(layer.kernel_size[::-1])
        ]
    flat = {tap: index for index, tap in enumerate(oracle.taps(layer.kernel_size))}
    order = []
    for offset in offsets:
        tap = tuple(
            (o + p) // d for o, p, d in zip(offset, layer.padding, layer.dilation, strict=True)
        )
        order.append(flat[tap])
    return order


def peer_weight(vector: Vector, layer: Layer, key: str = "weight") -> oracle.Array:
    """A recorded ``[K, C_in, C_out]`` weight as ``[C_out, K, C_in]``; taps it lacks are zero."""
    stored = vector[key]
    volume = int(np.prod(layer.kernel_size))
    if vector.meta["op"] == "depthwise conv":  # [K, C] -> [C, K, 1]
        stored = stored[:, None, :]
    elif stored.ndim == 2:  # one tap, stored without its axis
        stored = stored[None]
    out = np.zeros((stored.shape[2], volume, stored.shape[1]), stored.dtype)
    out[:, tap_order(vector, layer)] = stored.transpose(2, 0, 1)
    return out


def peer_groups(vector: Vector) -> int:
    """Groups of a recorded convolution."""
    return vector["weight"].shape[1] if vector.meta["op"] == "depthwise conv" else 1
