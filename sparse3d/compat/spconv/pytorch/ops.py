"""`spconv.pytorch.ops`."""

from ....nn.ops import *  # noqa: F403
