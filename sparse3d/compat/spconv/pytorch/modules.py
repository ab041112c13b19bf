"""`spconv.pytorch.modules`."""

from ....nn.modules import *  # noqa: F403
