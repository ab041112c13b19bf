"""Folding convolution, batch norm and activation into one pass for inference."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from ..tensor import SparseConvTensor
from ._convolution import SparseConvolution
from ._preparation import is_preparing
from .modules import SparseIdentity, SparseSequential

__all__ = ["fuse"]

M = TypeVar("M", bound=nn.Module)


def fused_run(
    children: Sequence[nn.Module], position: int, value: Any
) -> tuple[SparseConvTensor, int] | None:
    """Compute [conv, norm, activation] from `position` on in one pass, where that is the same.

    Returns:
        The output and the position after the run, or None if there is nothing to fold.
    """
    layer = children[position]
    if not isinstance(layer, SparseConvolution) or not isinstance(value, SparseConvTensor):
        return None
    if is_preparing() or layer.training or layer.act_type != "none" or _hooked(layer):
        return None
    norm, activation, alpha, end = _tail(children, position)
    if end == position + 1 or _wants_grad(layer, norm, value):
        return None
    weight, bias = _folded(layer, norm)
    return layer.run_fused(value, weight, bias, activation, alpha), end


def _tail(
    children: Sequence[nn.Module], position: int
) -> tuple[nn.BatchNorm1d | None, str, float, int]:
    """The norm and activation that follow a conv, and where they end."""
    end, norm = position + 1, None
    if end < len(children) and _foldable_norm(children[end]):
        norm = children[end]
        end += 1
    activation = _activation_of(children[end]) if end < len(children) else None
    if activation is None:
        return norm, "none", 0.0, end  # type: ignore[return-value]
    return norm, *activation, end + 1  # type: ignore[return-value]


def _foldable_norm(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.BatchNorm1d)
        and not module.training
        and module.running_mean is not None
        and not _hooked(module)
    )


def _activation_of(module: nn.Module) -> tuple[str, float] | None:
    if _hooked(module):
        return None
    if isinstance(module, nn.ReLU):
        return "relu", 0.0
    if isinstance(module, nn.LeakyReLU):
        return "leaky_relu", module.negative_slope
    if isinstance(module, nn.Sigmoid):
        return "sigmoid", 0.0
    return None


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _wants_grad(layer: SparseConvolution, norm: nn.Module | None, x: SparseConvTensor) -> bool:
    if not torch.is_grad_enabled():
        return False
    parameters = [*layer.parameters(), *([] if norm is None else norm.parameters())]
    return x.features.requires_grad or any(p.requires_grad for p in parameters)


def _folded(
    layer: SparseConvolution, norm: nn.BatchNorm1d | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """True kernel and bias with the norm's scale and shift folded in, in the layer's dtype."""
    weight, bias = layer.kernel(), layer.bias
    if norm is None or norm.running_mean is None or norm.running_var is None:
        return weight, bias
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    scale = torch.rsqrt(norm.running_var.to(wide) + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.to(wide)
    shift = -norm.running_mean.to(wide) * scale
    if norm.bias is not None:
        shift = shift + norm.bias.to(wide)
    if bias is not None:
        shift = shift + bias.to(wide) * scale
    folded = weight.to(wide) * scale.reshape(-1, *[1] * (weight.ndim - 1))
    return folded.to(weight.dtype), shift.to(wide)


def fuse(model: M) -> M:
    """A copy of `model` for inference, with conv + batch norm + activation folded into the conv.

    Runs inside `SparseSequential` are folded; what was folded away becomes an identity, so that
    indexing still holds. A layer that serves in several places, shares its parameters, or computes
    its weight (`torch.nn.utils.parametrize`) keeps its norm. The original is untouched.

    Args:
        model: in eval mode; a training module's norms are not folded.

    Returns:
        A deep copy of the same class.
    """
    made = copy.deepcopy(model)
    uses = Counter(
        id(item)
        for module in made.modules()
        for item in (*module._modules.values(), *module._parameters.values())
        if item is not None
    )
    for module in made.modules():
        if isinstance(module, SparseSequential):
            _fuse_children(module, uses)
    return made


def _is_shared(layer: SparseConvolution, uses: Counter[int]) -> bool:
    """Whether the layer, or a parameter of it, serves in more than one place."""
    return any(uses[id(item)] > 1 for item in (layer, *layer._parameters.values()))


def _fuse_children(sequence: SparseSequential, uses: Counter[int]) -> None:
    names, children = list(sequence._modules), list(sequence)
    for position, layer in enumerate(children):
        if not isinstance(layer, SparseConvolution) or layer.act_type != "none":
            continue
        norm, activation, alpha, end = _tail(children, position)
        if layer.training or end == position + 1 or _hooked(layer):
            continue
        if "weight" not in layer._parameters or _is_shared(layer, uses):
            continue
        weight, bias = _folded(layer, norm)
        with torch.no_grad():
            layer.set_kernel(weight)
            if bias is not None:
                values = bias.to(layer.weight.dtype)
                layer.bias = nn.Parameter(values, requires_grad=layer.weight.requires_grad)
        layer.act_type, layer.act_alpha = activation, alpha
        for name in names[position + 1 : end]:
            sequence._modules[name] = SparseIdentity()
