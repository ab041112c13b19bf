"""`spconv.pytorch.tables`."""

from ....nn.tables import *  # noqa: F403
from ....nn.tables import __all__
