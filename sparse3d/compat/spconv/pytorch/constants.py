"""`spconv.pytorch.constants`."""

from ....nn.constants import *  # noqa: F403
