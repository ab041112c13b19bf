"""`torchsparse.backend` of version 1.4."""

from ..torchsparse.backend import *  # noqa: F403
