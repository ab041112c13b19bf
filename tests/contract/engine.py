"""Short words for the contract tests: cases as tensors, the oracle's maps, running on a backend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
import torch

from sparse3d import _registry
from sparse3d._cases.clouds import Case, cloud
from sparse3d._registry import Op


def on(backend: str, *ops: Op) -> AbstractContextManager[None]:
    """Run what follows on ``backend``; skip where it has no kernel for any of ``ops``."""
    if backend != "reference" and not any(backend in op.kernels for op in ops):
        pytest.skip(f"{backend} has no kernel for {', '.join(op.name for op in ops)}")
    return _registry.force(backend)


def coords_of(name: str, ndim: int) -> torch.Tensor:
    """A cloud of the case table as a tensor."""
    return torch.from_numpy(cloud(name, ndim).copy())


def grid_of(case: Case) -> list[int]:
    """Output grid of a case's footprint; empty where the cloud has no grid or the layer none."""
    if case.grid is None:
        return []
    shape = oracle.output_shape(case.grid, *case.geometry.numbers)
    return shape if min(shape) > 0 else []


@cache
def oracle_map(case: Case, rule: str) -> oracle.Map:
    """The oracle's map of a case under a rule, remembered."""
    coords, numbers = case.coords, case.geometry.numbers
    if rule == "submanifold":
        return oracle.submanifold_map(coords, case.geometry.kernel_size, case.geometry.dilation)
    if rule == "footprint":
        return oracle.footprint_map(coords, *numbers, grid_of(case) or None)
    if rule == "generative":
        return oracle.generative_map(coords, *numbers, None)
    if rule == "floor":
        return oracle.floor_map(coords, *numbers)
    return oracle.given_map(coords, targets(case), *numbers)


def targets(case: Case) -> oracle.Array:
    """Output coordinates to hand over under rule *given*: some reached, some not, shuffled."""
    found = oracle.as_coords(oracle_map(case, "footprint").out, case.geometry.ndim)
    far = oracle.shifted(found[:3], [50] * case.geometry.ndim)
    out = np.concatenate([found, far])
    return out[np.random.default_rng(5).permutation(len(out))]


def pairs_of(found: oracle.Map) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A map's src, dst and splits as the tensors that ops take."""
    src, dst, splits = map(torch.from_numpy, (found.src, found.dst, found.splits))
    return src, dst, splits


def random(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Normal values rounded to ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def same_bytes(left: Any, right: Any) -> bool:
    """Whether two results (tensors, or tuples and lists of them) agree bit for bit."""
    if isinstance(left, torch.Tensor):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        raw = (part.contiguous().reshape(-1).view(torch.uint8) for part in (left, right))
        return torch.equal(*raw)
    return len(left) == len(right) and all(map(same_bytes, left, right))
