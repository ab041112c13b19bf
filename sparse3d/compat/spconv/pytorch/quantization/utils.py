"""`spconv.pytorch.quantization.utils`."""

from .....nn.folding import fuse_spconv_act_eval, fuse_spconv_bn_eval, fuse_spconv_bn_weights

__all__ = ["fuse_spconv_act_eval", "fuse_spconv_bn_eval", "fuse_spconv_bn_weights"]
