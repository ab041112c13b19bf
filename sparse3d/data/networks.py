"""The networks that a recipe can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from sparse3d.models.minkunet import MinkUNet
from sparse3d.models.spunet import SpUNet

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """How a recipe's network is made, and where its last layer lies.

    Attributes:
        build: Takes the recipe's ``model`` entries; called with a `SparseConvTensor`, and with
            positions between its voxels where those are scored, what it makes gives logits.
        bias: Name of the parameter that is added to the logits.
    """

    build: Callable[..., torch.nn.Module]
    bias: str


NETWORKS: Mapping[str, Network] = {
    "minkunet": Network(MinkUNet, "classifier.0.bias"),
    "spunet": Network(SpUNet, "final.bias"),
}
