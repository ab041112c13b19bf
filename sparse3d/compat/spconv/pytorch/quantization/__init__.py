"""`spconv.pytorch.quantization`."""

from .....nn.quantization import *  # noqa: F403
