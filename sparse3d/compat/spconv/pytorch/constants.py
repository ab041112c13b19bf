"""`spconv.pytorch.constants`."""

from ....nn.constants import *  # noqa: F403
from ....nn.constants import __all__
