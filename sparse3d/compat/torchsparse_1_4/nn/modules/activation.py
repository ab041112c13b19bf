"""`torchsparse.nn.modules.activation`."""

from . import LeakyReLU, ReLU

__all__ = ["LeakyReLU", "ReLU"]
