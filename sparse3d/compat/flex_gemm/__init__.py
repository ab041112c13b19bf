"""Stand-in for FlexGEMM 1.1.

Differences from the peer are listed in docs/migration/flex_gemm.md.
"""

from . import ops

__version__ = "1.1.0"

__all__ = ["__version__", "ops"]
