"""`spconv.pytorch.spatial`."""

from ....nn.spatial import *  # noqa: F403
