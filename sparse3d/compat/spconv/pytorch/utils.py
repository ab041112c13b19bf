"""`spconv.pytorch.utils`."""

from ....nn.utils import *  # noqa: F403
