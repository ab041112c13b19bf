"""`torchsparse.nn.functional.conv`."""

from . import conv3d

__all__ = ["conv3d"]
