"""`spconv.pytorch.modules`."""

from ....nn.modules import *  # noqa: F403
from ....nn.modules import __all__
