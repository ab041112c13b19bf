"""`spconv.pytorch.identity`."""

from ....nn.identity import *  # noqa: F403
from ....nn.identity import __all__
