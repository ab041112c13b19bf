"""`torchsparse.backend`: those of the peer's compiled functions that code calls by name, on every
device: hash table, hashes, counts, points to voxels and back.

Each function has the peer's two names, `..._cpu` and `..._cuda`. Numbers of rows start at 1: 0 says
that there is none.
"""

from __future__ import annotations

import torch

from ... import _check
from ...nn.functional import input_gradients
from ...ops.keys import find_keys, fnv_hash
from ...ops.lattice import moved_by
from ...ops.segment import count_segments
from ...ops.voxelize import interpolate_grad
from .nn.functional.hash import hash_of
from .nn.functional.voxelize import spdevoxelize, spvoxelize
from .nn.utils.kernel import get_kernel_offsets

__all__ = [
    "GPUHashTable",
    "GPUHashTable32",
    "count_cpu",
    "count_cuda",
    "devoxelize_backward_cpu",
    "devoxelize_backward_cuda",
    "devoxelize_forward_cpu",
    "devoxelize_forward_cuda",
    "hash_cpu",
    "hash_cuda",
    "hash_query_cpu",
    "hash_query_cuda",
    "kernel_hash_cpu",
    "kernel_hash_cuda",
    "voxelize_backward_cpu",
    "voxelize_backward_cuda",
    "voxelize_forward_cpu",
    "voxelize_forward_cuda",
]

FILL = 128  # answers come in multiples of this


class GPUHashTable:
    """Keys or coordinates by row; of equal ones the first row answers.

    Args:
        keys: integers [S] that the table lies in, of `width`; a table made of them again knows
            what was inserted. Or a capacity.
        values: int32 [S], zeros where the table is empty; None with a capacity.
    """

    width = torch.int64

    def __init__(self, keys: torch.Tensor | int, values: torch.Tensor | None = None) -> None:
        if isinstance(keys, int):
            self._rows = _check.positive("capacity", keys)
            self._keys = self._values = None
            return
        if values is None or keys.dtype != self.width or values.dtype != torch.int32:
            got = f"{keys.dtype} and {None if values is None else values.dtype}"
            _check.fail_type("keys and values", f"{self.width} and torch.int32", got)
        _check.same_rows("values", len(values), "keys", len(keys))
        self._rows, self._keys, self._values = len(keys), keys, values

    def insert_vals(self, keys: torch.Tensor) -> None:
        """Give each key the number of its row, from 1.

        Raises:
            ValueError: if there are more rows than the table has places.
        """
        if len(keys) > self._rows:
            _check.fail("keys", f"at most {self._rows}, the table's capacity", len(keys))
        if self._keys is None or self._values is None:
            self._keys = keys.new_zeros(self._rows)
            self._values = keys.new_zeros(self._rows, dtype=torch.int32)
        self._keys[: len(keys)] = keys
        self._values[: len(keys)] = torch.arange(1, len(keys) + 1, device=keys.device)

    def lookup_vals(self, keys: torch.Tensor) -> torch.Tensor:
        """The number of each key int32 [N filled up to a multiple of 128], 0 for none."""
        return self._filled(keys.reshape(-1, 1))[:, 0]

    def insert_coords(self, coords: torch.Tensor) -> None:
        """Give each row int32 [N, 4] (x, y, z, batch) its number, from 1."""
        self.insert_vals(self._hashes(coords))

    def lookup_coords(
        self,
        coords: torch.Tensor,
        kernel_sizes: torch.Tensor,
        strides: torch.Tensor,
        kernel_volume: int,
    ) -> torch.Tensor:
        """Numbers of the rows at `coords * strides + offset`, 0 for none.

        Args:
            coords: int32 [N, 4] (x, y, z, batch).
            kernel_sizes: int32 [3].
            strides: int32 [3].
            kernel_volume: K.

        Returns:
            int32 [N filled up to a multiple of 128, K], offsets in the order of
            `get_kernel_offsets`.
        """
        offsets = get_kernel_offsets(kernel_sizes, device=coords.device)
        if len(offsets) != kernel_volume:
            _check.fail(
                "kernel_volume", f"{len(offsets)}, of {kernel_sizes.tolist()}", kernel_volume
            )
        moved = moved_by(coords, offsets, strides.reshape(-1), batch_column=3)
        return self._filled(self._hashes(moved.transpose(0, 1)))

    def _hashes(self, coords: torch.Tensor) -> torch.Tensor:
        return fnv_hash(coords.int()).to(self.width)

    def _filled(self, queries: torch.Tensor) -> torch.Tensor:
        rows = -(-len(queries) // FILL) * FILL
        made = queries.new_zeros((rows, queries.shape[1]), dtype=torch.int32)
        if self._keys is not None and self._values is not None:
            taken = (self._values > 0).nonzero()[:, 0]
            found = find_keys(self._keys[taken], queries.contiguous())
            hit = found >= 0
            made[: len(queries)][hit] = self._values[taken[found[hit]]]
        return made


class GPUHashTable32(GPUHashTable):
    """The same with int32 keys."""

    width = torch.int32


def hash_cpu(coords: torch.Tensor) -> torch.Tensor:
    """FNV hashes int64 [N] of int32 rows [N, 4]."""
    return hash_of(coords, None, 3)


def kernel_hash_cpu(coords: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """FNV hashes int64 [K, N] of rows (x, y, z, batch) moved by each offset [K, 3]."""
    return hash_of(coords, offsets, 3)


def hash_query_cpu(
    queries: torch.Tensor, references: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    """One more than the index of each query's equal among the references, 0 for none."""
    return find_keys(references, queries, indices, base=1)


def count_cpu(coords: torch.Tensor, num: int) -> torch.Tensor:
    """How often each number in [0, num) occurs, int32."""
    return count_segments(coords, int(num)).int()


def voxelize_forward_cpu(
    feats: torch.Tensor, coords: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """Means [M, C] of the points of each voxel."""
    return spvoxelize(feats, coords, counts)


def voxelize_backward_cpu(
    grad: torch.Tensor, coords: torch.Tensor, counts: torch.Tensor, input_size: int
) -> torch.Tensor:
    """Gradient [N, C] to the points."""
    points = grad.new_zeros((len(coords), grad.shape[1]))
    return input_gradients(lambda rows: spvoxelize(rows, coords, counts), grad, points)[0]


def devoxelize_forward_cpu(
    feats: torch.Tensor, coords: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sums [N, C] of voxel features at rows [N, 8]."""
    return spdevoxelize(feats, coords, weights)


def devoxelize_backward_cpu(
    grad: torch.Tensor, coords: torch.Tensor, weights: torch.Tensor, input_size: int
) -> torch.Tensor:
    """Gradient [M, C] to the voxel features."""
    rows, shares = coords.int().contiguous(), weights.to(grad.dtype).contiguous()
    made: torch.Tensor = interpolate_grad(grad.contiguous(), rows, shares, int(input_size))
    return made


hash_cuda, kernel_hash_cuda, hash_query_cuda = hash_cpu, kernel_hash_cpu, hash_query_cpu
count_cuda = count_cpu
voxelize_forward_cuda, voxelize_backward_cuda = voxelize_forward_cpu, voxelize_backward_cpu
devoxelize_forward_cuda, devoxelize_backward_cuda = devoxelize_forward_cpu, devoxelize_backward_cpu
