"""`spconv.functional` of 1.x; tables and kernels are those of `spconv.ops`."""

from __future__ import annotations

import torch

from . import ops

__all__ = [
    "SparseConvFunction",
    "SparseInverseConvFunction",
    "SparseMaxPoolFunction",
    "SubMConvFunction",
    "indice_conv",
    "indice_inverse_conv",
    "indice_maxpool",
    "indice_subm_conv",
    "ops",
]


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Convolve over a pair table."""
    return ops.indice_conv(features, filters, indice_pairs, indice_pair_num, num_activate_out)


def indice_inverse_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """The same with the table's roles swapped."""
    return ops.indice_conv(features, filters, indice_pairs, indice_pair_num, num_activate_out, True)


def indice_subm_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Convolve over a submanifold table, which counts every pair."""
    return ops.indice_conv(features, filters, indice_pairs, indice_pair_num, num_activate_out)


def indice_maxpool(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a pair table, and 0."""
    return ops.indice_maxpool(features, indice_pairs, indice_pair_num, num_activate_out)


class SparseConvFunction:
    """`apply` is `indice_conv`."""

    apply = staticmethod(indice_conv)


class SparseInverseConvFunction:
    """`apply` is `indice_inverse_conv`."""

    apply = staticmethod(indice_inverse_conv)


class SubMConvFunction:
    """`apply` is `indice_subm_conv`."""

    apply = staticmethod(indice_subm_conv)


class SparseMaxPoolFunction:
    """`apply` is `indice_maxpool`."""

    apply = staticmethod(indice_maxpool)
