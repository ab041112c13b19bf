"""`torchsparse.nn.functional.pooling`."""

from . import global_avg_pool, global_max_pool

__all__ = ["global_avg_pool", "global_max_pool"]
