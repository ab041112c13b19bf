"""`torchsparse.nn.functional.activation`."""

from . import leaky_relu, relu

__all__ = ["leaky_relu", "relu"]
