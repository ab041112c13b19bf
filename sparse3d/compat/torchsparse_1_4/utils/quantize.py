"""`torchsparse.utils.quantize`."""

from ...torchsparse.utils.quantize import ravel_hash, sparse_quantize

__all__ = ["ravel_hash", "sparse_quantize"]
