"""spconv's `hash`: a table from integer keys to values, on any device."""

from __future__ import annotations

import torch

from .. import _check
from ..ops.coordinates import build_table, lookup, unique
from ..ops.keys import key_rows

__all__ = ["HashTable"]

KEY_DTYPES = (torch.int32, torch.int64)


class HashTable:
    """Integer keys to values.

    A key inserted again takes the new value; of equal keys in one call the lowest row counts.
    Rows are listed in order of first insertion.

    Args:
        device: where keys and values live.
        key_dtype: int32 or int64.
        value_dtype: any.
        max_size: accepted for spconv's signature; the table grows as needed.

    Raises:
        TypeError: if the key dtype is another.
    """

    def __init__(
        self,
        device: torch.device | str,
        key_dtype: torch.dtype,
        value_dtype: torch.dtype,
        max_size: int = -1,
    ) -> None:
        if key_dtype not in KEY_DTYPES:
            _check.fail_type("key_dtype", "int32 or int64", key_dtype)
        self.device = torch.device(device)
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.max_size = max_size
        self._keys = torch.empty(0, dtype=key_dtype, device=self.device)
        self._values = torch.empty(0, dtype=value_dtype, device=self.device)
        self._rows = self._as_rows(self._keys)
        self._table = build_table(self._rows)

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    def __len__(self) -> int:
        return len(self._keys)

    def _as_rows(self, keys: torch.Tensor) -> torch.Tensor:
        if keys.dtype != self.key_dtype:
            _check.fail_type("keys", str(self.key_dtype), keys.dtype)
        if keys.device.type != self.device.type:
            _check.fail("keys", f"on {self.device}", keys.device, "move them with .to(device)")
        return key_rows(keys)

    def insert(self, keys: torch.Tensor, values: torch.Tensor | None = None) -> None:
        """Add keys, with 0 where no values are given.

        Args:
            keys: [N].
            values: [N] or None.
        """
        rows = self._as_rows(keys)
        if values is None:
            values = torch.zeros(len(keys), dtype=self.value_dtype, device=keys.device)
        self._check_values(values, len(keys))
        first, _ = unique(rows)
        keys, rows, values = keys[first], rows[first], values[first]
        known = lookup(self._rows, self._table, rows)
        old = known >= 0
        kept = self._values.clone()
        kept[known[old].long()] = values[old]
        self._keys = torch.cat([self._keys, keys[~old]])
        self._values = torch.cat([kept, values[~old]])
        self._rows = torch.cat([self._rows, rows[~old]])
        self._table = build_table(self._rows)

    def query(
        self, keys: torch.Tensor, values: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of keys, and which are missing.

        Args:
            keys: [N].
            values: written to where given.

        Returns:
            Values [N], 0 where missing, and bool [N].
        """
        row = lookup(self._rows, self._table, self._as_rows(keys))
        missing = row < 0
        if values is None:
            values = torch.empty(len(keys), dtype=self.value_dtype, device=keys.device)
        self._check_values(values, len(keys))
        values.zero_()
        values[~missing] = self._values[row[~missing].long()]
        return values, missing

    def insert_exist_keys(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Give new values to keys that are there; uint8 [N], 1 where a key is not."""
        self._check_values(values, len(keys))
        row = lookup(self._rows, self._table, self._as_rows(keys))
        present = row >= 0
        self.insert(keys[present], values[present])
        return (~present).to(torch.uint8)

    def assign_arange_(self) -> torch.Tensor:
        """Number the keys in order of first insertion; returns how many there are, int [1]."""
        self._values = torch.arange(len(self), dtype=self.value_dtype, device=self.device)
        return torch.tensor([len(self)], dtype=self.key_dtype, device=self.device)

    def items(self, max_size: int = -1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Keys, values and their number int64 [1], in order of first insertion.

        Args:
            max_size: list at most so many; -1 for all.
        """
        end = len(self) if max_size < 0 else min(max_size, len(self))
        count = torch.tensor([end], dtype=torch.int64, device=self.device)
        return self._keys[:end].clone(), self._values[:end].clone(), count

    def _check_values(self, values: torch.Tensor, rows: int) -> None:
        _check.tensor("values", values, 1)
        if values.dtype != self.value_dtype:
            _check.fail_type("values", str(self.value_dtype), values.dtype)
        _check.same_rows("values", len(values), "keys", rows)
