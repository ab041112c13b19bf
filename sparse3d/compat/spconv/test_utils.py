"""`spconv.test_utils`: what the peer's own tests draw their scenes with."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["TestCase", "generate_sparse_data", "params_grid"]


class TestCase(unittest.TestCase):
    """Comparisons of arrays, or of dictionaries of arrays."""

    __test__ = False

    def assertAllEqual(self, a: Any, b: Any) -> None:
        """Shapes and values are equal; NaN equals NaN."""
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

    def assertAllClose(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str = ""
    ) -> None:
        """Shapes are equal, and values close."""
        if isinstance(a, dict) and isinstance(b, dict):
            assert a.keys() == b.keys(), msg
            for key, value in a.items():
                self.assertAllClose(value, b[key], rtol, atol, msg)
            return
        first, second = np.asarray(a), np.asarray(b)
        assert first.shape == second.shape, msg
        np.testing.assert_allclose(first, second, rtol=rtol, atol=atol, err_msg=msg)


def params_grid(*params: Sequence[Any]) -> list[list[Any]]:
    """Every combination, the last parameter fastest."""
    return [list(row) for row in itertools.product(*params)]


def generate_sparse_data(
    shape: Sequence[int],
    num_points: Sequence[int],
    num_channels: int,
    integer: bool = False,
    data_range: Sequence[float] = (-1, 1),
    with_dense: bool = True,
    dtype: Any = np.float32,
    shape_scale: int = 1,
) -> dict[str, Any]:
    """Random scenes, drawn from numpy's global generator as the peer does.

    Args:
        shape: of the grid.
        num_points: sites of each sample.
        num_channels: of the features.
        integer: draw integers.
        data_range: of the features.
        with_dense: give the dense array too.
        dtype: of the features.
        shape_scale: sites are multiples of this.

    Returns:
        `features` [N, C], `indices` int32 [N, D + 1] with the batch id last, and `features_dense`
        [B, C, *shape].
    """
    ends = [size // shape_scale * shape_scale for size in shape]
    cells = np.meshgrid(*[np.arange(0, end, shape_scale) for end in ends])
    every = np.stack(cells, axis=-1).reshape(-1, len(shape))
    samples = []
    for batch, number in enumerate(num_points):
        np.random.shuffle(every)  # noqa: NPY002
        chosen = every[:number]
        samples.append(np.pad(chosen, ((0, 0), (0, 1)), constant_values=batch))
    indices = np.concatenate(samples)
    draw: Any = np.random.randint if integer else np.random.uniform
    features = draw(*data_range, size=[len(indices), num_channels]).astype(dtype)
    made = {"features": features, "indices": indices.astype(np.int32)}
    if with_dense:
        dense = np.zeros([len(samples), num_channels, *shape], dtype)
        rows: tuple[Any, ...] = (indices[:, -1], slice(None), *indices[:, :-1].T)
        dense[rows] = features
        made["features_dense"] = dense
    return made
