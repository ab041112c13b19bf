"""pointops.aggregation."""

from ...pointops.attention import aggregation

__all__ = ["aggregation"]
