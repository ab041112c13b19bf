"""`spconv.pytorch.quantization`."""

from ....nn.quantization import *  # noqa: F403
from ....nn.quantization import __all__
