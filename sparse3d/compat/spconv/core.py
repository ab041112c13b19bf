"""`spconv.core`."""

from ...nn.core import AlgoHint, ConvAlgo

__all__ = ["AlgoHint", "ConvAlgo"]
