"""Our operators in plain ONNX, for `torch.onnx`.

Taps are static (the weight's shape has them), their bounds are an input: a tap of a convolution is
one Slice of the pairs, one Gather of rows, one MatMul, and one ScatterND that adds. Layers of one
map share the Slices. A pool is one Gather and one ScatterND.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ops.conv import conv_forward, conv_fused
from ..ops.pool import pool_max, pool_sum

__all__ = ["OPSET", "SUPPORTED", "Translator"]

OPSET = 18
"""The first in which ScatterND takes a maximum."""

SUPPORTED = (conv_forward.overload, conv_fused.overload, pool_sum.overload, pool_max.overload)

_BOOL, _INT64 = 9, 7  # onnx.TensorProto's numbers


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a method's signature: `torch.onnx` writes attributes on what it is given."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return run


class Translator:
    """Writes our operators into the graph that `torch.onnx` is building.

    One serves one export: it remembers constants and the pairs of taps. Values are onnxscript's.
    """

    def __init__(self) -> None:
        import onnxscript

        self._op: Any = onnxscript.opset18
        self._vectors: dict[tuple[int, ...], Any] = {}
        self._indices: dict[int, Any] = {}
        self._taps: dict[tuple[int, int], Any] = {}
        self._kept: list[Any] = []  # a value that lives keeps its id

    def table(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Operator -> function, as `custom_translation_table` wants it."""
        functions: list[Callable[..., Any]] = [
            self.conv_forward, self.conv_fused, self.pool_sum, self.pool_max,
        ]  # fmt: skip
        return dict(zip(SUPPORTED, map(_plain, functions), strict=True))

    def conv_forward(
        self,
        features: Any,
        weight: Any,
        src: Any,
        dst: Any,
        splits: Any,
        plan: Any,
        grad_plan: Any,
        num_out: Any,
        groups: int,
    ) -> Any:
        return self._convolve(features, weight, src, dst, splits, num_out, groups)

    def conv_fused(
        self,
        features: Any,
        weight: Any,
        src: Any,
        dst: Any,
        splits: Any,
        plan: Any,
        num_out: Any,
        groups: int,
        bias: Any,
        residual: Any,
        activation: str,
        alpha: float,
        scale: Any = None,
    ) -> Any:
        op = self._op
        out = self._convolve(features, weight, src, dst, splits, num_out, groups)
        if scale is not None:
            out = op.Mul(out, op.CastLike(scale, out))
        if bias is not None:
            out = op.Add(out, op.CastLike(bias, out))
        if residual is not None:
            out = op.Add(out, residual)
        if activation == "relu":
            return op.Relu(out)
        if activation == "leaky_relu":
            return op.LeakyRelu(out, alpha=alpha)
        return op.Sigmoid(out) if activation == "sigmoid" else out

    def pool_sum(self, features: Any, src: Any, dst: Any, splits: Any, num_out: Any) -> Any:
        op = self._op
        out = self._filled(0.0, num_out, features.shape[1], features)
        values = op.Gather(features, src, axis=0)
        return op.ScatterND(out, self._places(dst), values, reduction="add")

    def pool_max(self, features: Any, src: Any, dst: Any, splits: Any, num_out: Any) -> Any:
        """The second result, the winners' rows, serves gradients; inference has none."""
        op = self._op
        values, places = op.Gather(features, src, axis=0), self._places(dst)
        lowest = self._filled(float("-inf"), num_out, features.shape[1], features)
        best = op.ScatterND(lowest, places, values, reduction="max")
        zeros = self._filled(0.0, num_out, features.shape[1], features)
        ones = op.Expand(op.CastLike(op.Constant(value_float=1.0), features), op.Shape(values))
        reached = op.ScatterND(zeros, places, ones, reduction="max")
        return op.Where(op.Cast(reached, to=_BOOL), best, zeros), op.Identity(src)

    def _convolve(
        self, features: Any, weight: Any, src: Any, dst: Any, splits: Any, num_out: Any, groups: int
    ) -> Any:
        op = self._op
        channels_out, taps, channels_in = weight.shape
        out = self._filled(0.0, num_out, channels_out, features)
        if groups == 1:
            kernel = op.Transpose(weight, perm=[1, 2, 0])
            if taps == 1 and src is dst:  # a pointwise layer: every row meets itself
                return op.MatMul(features, op.Gather(kernel, self._index(0), axis=0))
        else:
            # Groups first, before the Gather: older runtimes fuse a Transpose into the MatMul that
            # follows, and die where the tap has no pairs. In Reshape 0 keeps a size.
            apart = (groups, channels_out // groups, taps, channels_in)
            kernel = op.Transpose(op.Reshape(weight, self._vector(*apart)), perm=[2, 0, 3, 1])
            split = op.Reshape(features, self._vector(0, groups, channels_in))
            features = op.Transpose(split, perm=[1, 0, 2])
        for tap in range(taps):
            rows = op.Gather(features, self._tap(src, splits, tap), axis=0 if groups == 1 else 1)
            product = op.MatMul(rows, op.Gather(kernel, self._index(tap), axis=0))
            if groups > 1:
                joined = op.Transpose(product, perm=[1, 0, 2])
                product = op.Reshape(joined, self._vector(0, channels_out))
            places = self._places(self._tap(dst, splits, tap))
            out = op.ScatterND(out, places, product, reduction="add")
        return out

    def _tap(self, rows: Any, splits: Any, tap: int) -> Any:
        key = (id(rows), tap)
        if key not in self._taps:
            op = self._op
            bounds = [op.Gather(splits, self._vector(end), axis=0) for end in (tap, tap + 1)]
            self._taps[key] = op.Slice(rows, *bounds)
            self._kept.append(rows)
        return self._taps[key]

    def _places(self, rows: Any) -> Any:
        """Row numbers as ScatterND takes them, int64 [P, 1]."""
        key = (id(rows), -1)
        if key not in self._taps:
            op = self._op
            self._taps[key] = op.Unsqueeze(op.Cast(rows, to=_INT64), self._vector(-1))
            self._kept.append(rows)
        return self._taps[key]

    def _filled(self, value: float, num_out: Any, columns: int, like: Any) -> Any:
        op = self._op
        rows = self._vector(num_out) if isinstance(num_out, int) else num_out
        shape = op.Concat(op.Reshape(rows, self._vector(1)), self._vector(columns), axis=0)
        return op.Expand(op.CastLike(op.Constant(value_float=value), like), shape)

    def _index(self, value: int) -> Any:
        if value not in self._indices:
            self._indices[value] = self._op.Constant(value_int=value)
        return self._indices[value]

    def _vector(self, *values: int) -> Any:
        if values not in self._vectors:
            self._vectors[values] = self._op.Constant(value_ints=list(values))
        return self._vectors[values]
