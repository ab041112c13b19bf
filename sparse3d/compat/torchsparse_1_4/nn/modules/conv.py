"""`torchsparse.nn.modules.conv`."""

from . import Conv3d

__all__ = ["Conv3d"]
