"""`spconv.modules` of 1.x."""

from ...nn import modules as _modules
from ...nn.modules import *  # noqa: F403
from ._legacy import SparseSequential

__all__: list[str] = ["SparseSequential"]
__all__ += [name for name in _modules.__all__ if name != "SparseSequential"]
