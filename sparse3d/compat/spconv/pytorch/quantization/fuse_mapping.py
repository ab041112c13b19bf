"""`spconv.pytorch.quantization.fuse_mapping`: what replaces a run of layers."""

from .....nn.folding import fuse_conv_bn, fuse_conv_bn_add_relu, fuse_conv_bn_relu

__all__ = ["fuse_conv_bn", "fuse_conv_bn_add_relu", "fuse_conv_bn_relu"]
