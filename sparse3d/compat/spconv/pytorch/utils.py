"""`spconv.pytorch.utils`."""

from ....nn.utils import *  # noqa: F403
from ....nn.utils import __all__
