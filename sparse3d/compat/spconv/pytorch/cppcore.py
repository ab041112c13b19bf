"""`spconv.pytorch.cppcore`."""

from ....nn.cppcore import *  # noqa: F403
from ....nn.cppcore import __all__
