"""pointops.subtraction."""

from ...pointops.attention import subtraction

__all__ = ["subtraction"]
