"""`cumm.tensorview.gemm`: activations; the parameters of kernels are refused when they are used."""

from __future__ import annotations

from enum import Enum

from ..._refusal import refused
from ..conv.bases import ConvOpType

__all__ = [
    "Activation",
    "ConvAlgoDesp",
    "ConvOpType",
    "ConvParams",
    "GemmAlgoDesp",
    "GemmParams",
    "NVRTCParams",
]

WAY_OUT = "layers choose their kernels by themselves"


class Activation(str, Enum):
    """Equal to the names that layers keep."""

    None_ = "none"
    ReLU = "relu"
    Sigmoid = "sigmoid"
    LeakyReLU = "leaky_relu"


ConvAlgoDesp = refused("cumm.tensorview.gemm.ConvAlgoDesp", WAY_OUT)
ConvParams = refused("cumm.tensorview.gemm.ConvParams", WAY_OUT)
GemmAlgoDesp = refused("cumm.tensorview.gemm.GemmAlgoDesp", WAY_OUT)
GemmParams = refused("cumm.tensorview.gemm.GemmParams", WAY_OUT)
NVRTCParams = refused("cumm.tensorview.gemm.NVRTCParams", WAY_OUT)
