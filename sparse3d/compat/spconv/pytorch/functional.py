"""`spconv.pytorch.functional`."""

from ....nn.functional import *  # noqa: F403
