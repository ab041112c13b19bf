"""`spconv.pytorch.ops`."""

from ....nn.ops import *  # noqa: F403
from ....nn.ops import __all__
