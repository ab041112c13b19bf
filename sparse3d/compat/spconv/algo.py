"""`spconv.algo`: the peer's tuners, which are refused when they are used: nothing is tuned here."""

from .._refusal import refused
from .core import AlgoHint, ConvAlgo

__all__ = [
    "CONV",
    "CONV_CPP",
    "GEMM",
    "GEMM_CPP",
    "AlgoHint",
    "BestAlgoByProfile",
    "BestConvAlgoByProfile",
    "ConvAlgo",
    "ConvTunerSimple",
    "GemmTunerSimple",
    "SimpleConv",
    "SimpleGemm",
]

WAY_OUT = "layers choose their kernels by themselves"

CONV = refused("spconv.algo.CONV", WAY_OUT)
CONV_CPP = refused("spconv.algo.CONV_CPP", WAY_OUT)
GEMM = refused("spconv.algo.GEMM", WAY_OUT)
GEMM_CPP = refused("spconv.algo.GEMM_CPP", WAY_OUT)
BestAlgoByProfile = refused("spconv.algo.BestAlgoByProfile", WAY_OUT)
BestConvAlgoByProfile = refused("spconv.algo.BestConvAlgoByProfile", WAY_OUT)
ConvTunerSimple = refused("spconv.algo.ConvTunerSimple", WAY_OUT)
GemmTunerSimple = refused("spconv.algo.GemmTunerSimple", WAY_OUT)
SimpleConv = refused("spconv.algo.SimpleConv", WAY_OUT)
SimpleGemm = refused("spconv.algo.SimpleGemm", WAY_OUT)
