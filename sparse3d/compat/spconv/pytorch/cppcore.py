"""`spconv.pytorch.cppcore`."""

from ....nn.cppcore import *  # noqa: F403
