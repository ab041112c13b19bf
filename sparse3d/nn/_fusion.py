"""Convolution, batch norm and activation in fewer passes: in inference, and norms in training."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from ..ops.conv import scaled
from ..ops.norm import batch_norm_relu_train
from ..tensor import SparseConvTensor
from ..tensor.sparse_conv_tensor import same_sites
from ._convolution import SparseConvolution
from ._preparation import is_preparing
from ._room import Room
from .modules import (
    SparseBatchNorm,
    SparseIdentity,
    SparseReLU,
    SparseSequential,
    check_width,
    normalize_and_relu,
)

__all__ = ["fuse"]

M = TypeVar("M", bound=nn.Module)


def residual_place(children: Sequence[nn.Module]) -> int:
    """Where a container's `add_input` is added: before this child, or after all.

    That is a last activation. Where `fuse` folded it into a convolution, the convolution itself,
    which adds before its activation.
    """
    end = len(children)
    while end > 0 and isinstance(children[end - 1], nn.Identity):
        end -= 1
    if end == 0:
        return len(children)
    last = children[end - 1]
    folded = isinstance(last, SparseConvolution) and last.act_type != "none"
    activation = isinstance(last, (nn.ReLU, nn.LeakyReLU, nn.Sigmoid))
    return end - 1 if folded or activation else len(children)


def fused_run(
    children: Sequence[nn.Module],
    position: int,
    value: Any,
    add_input: SparseConvTensor | None,
    place: int,
) -> tuple[SparseConvTensor, int, SparseConvTensor | None] | None:
    """Compute [conv, norm, activation] from `position` on in one pass, where that is the same.

    Args:
        children: of a container.
        position: of the conv.
        value: its input.
        add_input: the container's residual or None.
        place: where it is added.

    Returns:
        The output, the position after the run and the residual if it is still to be added; or
        None if there is nothing to fold.
    """
    layer = children[position]
    if not isinstance(layer, SparseConvolution) or not isinstance(value, SparseConvTensor):
        return None
    if is_preparing() or layer.training or layer.act_type != "none" or _does_more(layer):
        return None
    norm, activation, alpha, end = _tail(children, position)
    here = position < place < end or place == end == len(children)
    residual = add_input if here else None
    if end == position + 1 or _wants_grad(layer, norm, value, residual):
        return None
    if norm is not None:
        check_width(norm, position + 1, layer.out_channels)
    scale, bias = _scale_and_bias(layer, norm)
    out = layer.run_fused(value, scale, bias, residual, activation, alpha)
    return out, end, None if here else add_input


def fused_norm(
    children: Sequence[nn.Module],
    position: int,
    value: Any,
    add_input: SparseConvTensor | None,
    place: int,
) -> tuple[SparseConvTensor, int, SparseConvTensor | None] | None:
    """Compute [norm, ReLU] in training in fewer passes where that gives the same bytes.

    That is `SparseBatchNorm`; torch's own batch norm sums in an order that follows the thread
    count. Arguments and result as for `fused_run`.
    """
    pair = children[position : position + 2]
    if len(pair) < 2 or not isinstance(value, SparseConvTensor) or not _plain_rows(value):
        return None
    norm, activation = pair
    if not _is_own_norm(norm) or not _is_relu(activation) or any(map(_watched, pair)):
        return None
    features, residual = value.features, None
    check_width(norm, position, features.shape[1])
    if add_input is not None and place == position + 1:
        residual = add_input.features
        alike = residual.dtype == features.dtype and residual.shape == features.shape
        if not alike or not same_sites(value, add_input):
            return None
        add_input = None
    out = value.replace_feature(normalize_and_relu(norm, features, residual))
    return out, position + 2, add_input


def _is_own_norm(module: nn.Module) -> TypeGuard[SparseBatchNorm]:
    return (
        isinstance(module, SparseBatchNorm)
        and module.training
        and type(module).forward is SparseBatchNorm.forward
    )


def _is_relu(module: nn.Module) -> bool:
    return isinstance(module, nn.ReLU) and type(module).forward in (
        nn.ReLU.forward,
        SparseReLU.forward,
    )


def _plain_rows(value: SparseConvTensor) -> bool:
    """Whether all rows are sites, on a device where one operator beats three."""
    device = value.features.device
    # On an H200 a training step took 3 to 6 ms more of the device with it.
    if device.type == "cuda" or isinstance(value._coordinates, Room):
        return False
    return torch.compiler.is_compiling() or batch_norm_relu_train.has_kernel(device)


def _watched(module: nn.Module) -> bool:
    """Whether a hook wants the module's own call, in either direction."""
    own = _does_more(module) or module._backward_hooks or module._backward_pre_hooks
    return bool(
        own
        or torch_module._global_forward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_backward_pre_hooks
        or torch_module._global_backward_hooks
    )


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
        and not _does_more(module)
    )


def _activation_of(module: nn.Module) -> tuple[str, float] | None:
    if _does_more(module):
        return None
    if isinstance(module, nn.ReLU):
        return "relu", 0.0
    if isinstance(module, nn.LeakyReLU):
        return "leaky_relu", module.negative_slope
    if isinstance(module, nn.Sigmoid):
        return "sigmoid", 0.0
    return None


# Whose own arithmetic is folded; a class that overrides `forward` computes something else.
_KNOWN: tuple[Any, ...] = (
    SparseConvolution.forward,
    *(kind.forward for kind in (nn.BatchNorm1d, SparseBatchNorm, nn.LeakyReLU, nn.Sigmoid)),
    *(kind.forward for kind in (nn.ReLU, SparseReLU)),
)


def _does_more(module: nn.Module) -> bool:
    """Whether calling the module does more than its class's own arithmetic."""
    if "forward" in module.__dict__ or type(module).forward not in _KNOWN:
        return True
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _wants_grad(
    layer: SparseConvolution, norm: nn.Module | None, *inputs: SparseConvTensor | None
) -> bool:
    if not torch.is_grad_enabled():
        return False
    values = [x.features for x in inputs if x is not None]
    parameters = [*layer.parameters(), *([] if norm is None else norm.parameters())]
    return any(value.requires_grad for value in (*values, *parameters))


def _scale_and_bias(
    layer: SparseConvolution, norm: nn.BatchNorm1d | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What norm and bias do to the sums of a layer: a few numbers a channel, made at each call,
    so that they follow every change of the norm."""
    bias = layer.bias
    if norm is None or norm.running_mean is None or norm.running_var is None:
        return None, bias
    wide = torch.float64 if layer.weight.dtype == torch.float64 else torch.float32
    mean, variance = norm.running_mean.to(wide), norm.running_var.to(wide)
    values: tuple[torch.Tensor | None, ...] = (norm.weight, norm.bias, bias)
    gain, offset, before = (None if value is None else value.to(wide) for value in values)
    return norm_as_scale(mean, variance, norm.eps, gain, offset, before)


def norm_as_scale(
    mean: torch.Tensor,
    variance: torch.Tensor,
    eps: float,
    gain: torch.Tensor | None,
    offset: torch.Tensor | None,
    before: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch norm of `x + before` in inference as `x * scale + shift`.

    Args:
        mean: running means [C].
        variance: running variances [C].
        eps: added to the variances.
        gain: [C] or None for ones.
        offset: [C] or None for zeros.
        before: [C] or None, the bias of the layer in front.
    """
    scale = torch.rsqrt(variance + eps)
    if gain is not None:
        scale = scale * gain
    shift = -mean * scale
    if offset is not None:
        shift = shift + offset
    return scale, shift if before is None else shift + before * scale


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
        if layer.training or end == position + 1 or _does_more(layer):
            continue
        if "weight" not in layer._parameters or _is_shared(layer, uses):
            continue
        scale, bias = _scale_and_bias(layer, norm)
        with torch.no_grad():
            layer.set_kernel(scaled(layer.kernel(), scale))
            if bias is not None:
                values = bias.to(layer.weight.dtype)
                layer.bias = nn.Parameter(values, requires_grad=layer.weight.requires_grad)
        layer.act_type, layer.act_alpha = activation, alpha
        for name in names[position + 1 : end]:
            sequence._modules[name] = SparseIdentity()
