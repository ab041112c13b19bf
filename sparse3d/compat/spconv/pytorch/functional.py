"""`spconv.pytorch.functional`."""

from ....nn.functional import *  # noqa: F403
from ....nn.functional import __all__
