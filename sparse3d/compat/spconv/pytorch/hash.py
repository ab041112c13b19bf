"""`spconv.pytorch.hash`."""

from ....nn.hash import *  # noqa: F403
from ....nn.hash import __all__
