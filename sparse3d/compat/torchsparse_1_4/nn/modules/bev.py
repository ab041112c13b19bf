"""`torchsparse.nn.modules.bev`."""

from . import ToBEVConvolution, ToBEVHeightCompression, ToBEVReduction, ToDenseBEVConvolution

__all__ = ["ToBEVConvolution", "ToBEVHeightCompression", "ToBEVReduction", "ToDenseBEVConvolution"]
