"""`spconv.pytorch.hash`."""

from ....nn.hash import *  # noqa: F403
