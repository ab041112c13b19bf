"""`spconv.pytorch.tables`."""

from ....nn.tables import *  # noqa: F403
