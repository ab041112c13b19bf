"""Functional forms (spconv's `functional`, usually imported as Fsp).

The operators on pair tables are differentiable, in second order too, and follow autocast as the
layers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from ..tensor import SparseConvTensor, add
from . import ops

T = TypeVar("T")

__all__ = [
    "SparseAvgPoolImplicitGemmFunction",
    "SparseConvFunction",
    "SparseImplicitGemmFunction",
    "SparseInverseConvFunction",
    "SparseMaxPoolFunction",
    "SparseMaxPoolImplicitGemmFunction",
    "SubMConvFunction",
    "identity_decorator",
    "implicit_gemm",
    "indice_avgpool_implicit_gemm",
    "indice_conv",
    "indice_inverse_conv",
    "indice_maxpool",
    "indice_maxpool_implicit_gemm",
    "indice_subm_conv",
    "sparse_add",
    "sparse_add_hash_based",
]


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    algo: object = None,
    timer: object = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
) -> torch.Tensor:
    """Convolve over a pair table [2, K, N] padded with -1; see `ops.indice_conv`."""
    return ops.indice_conv(
        features,
        filters,
        indice_pairs,
        indice_pair_num,
        num_activate_out,
        bias=bias,
        act_alpha=act_alpha,
        act_type=act_type,
    )


def indice_inverse_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    algo: object = None,
    timer: object = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
) -> torch.Tensor:
    """Convolve over the table of the layer to undo, roles swapped."""
    return ops.indice_conv(
        features,
        filters,
        indice_pairs,
        indice_pair_num,
        num_activate_out,
        inverse=True,
        bias=bias,
        act_alpha=act_alpha,
        act_type=act_type,
    )


def indice_subm_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    algo: object = None,
    timer: object = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
) -> torch.Tensor:
    """Convolve over a submanifold table, which counts its first half only."""
    return ops.indice_conv(
        features,
        filters,
        indice_pairs,
        indice_pair_num,
        num_activate_out,
        subm=True,
        bias=bias,
        act_alpha=act_alpha,
        act_type=act_type,
    )


def implicit_gemm(
    features: torch.Tensor,
    filters: torch.Tensor,
    pair_fwd: torch.Tensor,
    pair_bwd: torch.Tensor | None = None,
    pair_mask_fwd_splits: Sequence[torch.Tensor] = (),
    pair_mask_bwd_splits: Sequence[torch.Tensor] = (),
    mask_argsort_fwd_splits: Sequence[torch.Tensor] = (),
    mask_argsort_bwd_splits: Sequence[torch.Tensor] = (),
    num_activate_out: int = -1,
    masks: Sequence[Any] = (),
    is_train: bool = False,
    is_subm: bool = False,
    timer: object = None,
    fp32_accum: bool | None = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
) -> torch.Tensor:
    """Convolve over a neighbour table [K, M]; masks and orders are not needed; see
    `ops.implicit_gemm`."""
    return ops.implicit_gemm(
        features,
        filters,
        pair_fwd,
        num_activate_out=num_activate_out,
        bias=bias,
        act_alpha=act_alpha,
        act_type=act_type,
    )[0]


def indice_maxpool(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a pair table, the true one; see `ops.indice_maxpool`."""
    return ops.indice_maxpool(features, indice_pairs, indice_pair_num, num_activate_out)


def indice_maxpool_implicit_gemm(
    features: torch.Tensor,
    indice_pairs_fwd: torch.Tensor,
    indice_pairs_bwd: torch.Tensor | None,
    num_activate_out: int,
) -> torch.Tensor:
    """Maximum over a neighbour table, the true one."""
    return ops.indice_maxpool_implicit_gemm(features, indice_pairs_fwd, num_activate_out)


def indice_avgpool_implicit_gemm(
    features: torch.Tensor,
    indice_pairs_fwd: torch.Tensor,
    indice_pairs_bwd: torch.Tensor | None,
    num_activate_out: int,
    calc_count: bool = True,
) -> torch.Tensor:
    """Mean over a neighbour table."""
    return ops.indice_avgpool_implicit_gemm(features, indice_pairs_fwd, num_activate_out)[0]


def sparse_add(*tens: SparseConvTensor) -> SparseConvTensor:
    """Sum over the union of the sites; rows and maps are those of a tensor that has every site.

    Args:
        *tens: of one grid, batch size and channel count.
    """
    return add(*tens)


def sparse_add_hash_based(*tens: SparseConvTensor) -> SparseConvTensor:
    """The same as `sparse_add`; spconv has two implementations."""
    return add(*tens)


def identity_decorator(func: T) -> T:
    """Give back the function."""
    return func


def input_gradients(
    function: Callable[..., torch.Tensor], grad: torch.Tensor, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Gradients of a function at its inputs, for interfaces that have a backward function of their
    own.

    Args:
        function: takes the inputs, gives one tensor.
        grad: of its result.
        *inputs: floating tensors; they are neither changed nor given a gradient.
    """
    with torch.enable_grad():
        leaves = [rows.detach().requires_grad_() for rows in inputs]
        return torch.autograd.grad(function(*leaves), leaves, grad)


def as_function(name: str, apply: Callable[..., Any]) -> type:
    """spconv's `autograd.Function` of an operator: a class whose `apply` is the operator, which
    carries its own gradients."""
    words = f"`apply` is `{getattr(apply, '__name__', name)}`."
    return type(name, (), {"apply": staticmethod(apply), "__doc__": words})


SparseConvFunction = as_function("SparseConvFunction", indice_conv)
SparseInverseConvFunction = as_function("SparseInverseConvFunction", indice_inverse_conv)
SubMConvFunction = as_function("SubMConvFunction", indice_subm_conv)
SparseImplicitGemmFunction = as_function("SparseImplicitGemmFunction", implicit_gemm)
SparseMaxPoolFunction = as_function("SparseMaxPoolFunction", indice_maxpool)
SparseMaxPoolImplicitGemmFunction = as_function(
    "SparseMaxPoolImplicitGemmFunction", indice_maxpool_implicit_gemm
)
SparseAvgPoolImplicitGemmFunction = as_function(
    "SparseAvgPoolImplicitGemmFunction", indice_avgpool_implicit_gemm
)
