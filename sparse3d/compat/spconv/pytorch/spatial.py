"""`spconv.pytorch.spatial`."""

from ....nn.spatial import *  # noqa: F403
from ....nn.spatial import __all__
