"""`spconv.pytorch.identity`."""

from ....nn.identity import *  # noqa: F403
