"""`MinkowskiFunctional`: torch's functional forms on the features; losses give torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ...ops.linear import linear as _linear
from .MinkowskiTensor import Tensor

__all__ = [
    "alpha_dropout",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cross_entropy",
    "dropout",
    "elu",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]


def _rows(value: Any) -> Any:
    return value.F if isinstance(value, Tensor) else value


def _wrap_tensor(input: Tensor, F: torch.Tensor) -> Any:
    """Other features on the coordinates of `input`."""
    return input._like(F)


def _on_features(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return input._like(function(input.F, *args, **kwargs))

    wrapped.__name__ = function.__name__
    wrapped.__doc__ = f"`torch.nn.functional.{function.__name__}` on the features."
    return wrapped


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(input: Tensor, target: Any, *args: Any, **kwargs: Any) -> Any:
        return function(_rows(input), _rows(target), *args, **kwargs)

    wrapped.__name__ = function.__name__
    wrapped.__doc__ = f"`torch.nn.functional.{function.__name__}` of the features."
    return wrapped


threshold = _on_features(F.threshold)
relu = _on_features(F.relu)
hardtanh = _on_features(F.hardtanh)
hardswish = _on_features(F.hardswish)
relu6 = _on_features(F.relu6)
elu = _on_features(F.elu)
selu = _on_features(F.selu)
celu = _on_features(F.celu)
leaky_relu = _on_features(F.leaky_relu)
prelu = _on_features(F.prelu)
rrelu = _on_features(F.rrelu)
glu = _on_features(F.glu)
gelu = _on_features(F.gelu)
logsigmoid = _on_features(F.logsigmoid)
hardshrink = _on_features(F.hardshrink)
tanhshrink = _on_features(F.tanhshrink)
softsign = _on_features(F.softsign)
softplus = _on_features(F.softplus)
softmin = _on_features(F.softmin)
softmax = _on_features(F.softmax)
softshrink = _on_features(F.softshrink)
gumbel_softmax = _on_features(F.gumbel_softmax)
log_softmax = _on_features(F.log_softmax)
tanh = _on_features(F.tanh)
sigmoid = _on_features(F.sigmoid)
hardsigmoid = _on_features(F.hardsigmoid)
silu = _on_features(F.silu)
batch_norm = _on_features(F.batch_norm)
normalize = _on_features(F.normalize)
linear = _on_features(_linear)
dropout = _on_features(F.dropout)
alpha_dropout = _on_features(F.alpha_dropout)
binary_cross_entropy = _loss(F.binary_cross_entropy)
binary_cross_entropy_with_logits = _loss(F.binary_cross_entropy_with_logits)
poisson_nll_loss = _loss(F.poisson_nll_loss)
cross_entropy = _loss(F.cross_entropy)
hinge_embedding_loss = _loss(F.hinge_embedding_loss)
kl_div = _loss(F.kl_div)
l1_loss = _loss(F.l1_loss)
mse_loss = _loss(F.mse_loss)
multilabel_margin_loss = _loss(F.multilabel_margin_loss)
multilabel_soft_margin_loss = _loss(F.multilabel_soft_margin_loss)
multi_margin_loss = _loss(F.multi_margin_loss)
nll_loss = _loss(F.nll_loss)
smooth_l1_loss = _loss(F.smooth_l1_loss)
soft_margin_loss = _loss(F.soft_margin_loss)
