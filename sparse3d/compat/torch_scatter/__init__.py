"""Stand-in for torch_scatter 2.1: reductions over the deterministic scatter operators.

| name | status | difference |
|---|---|---|
| scatter, scatter_sum/add/mul/mean/min/max | same | sums in ascending order, on every device |
| segment_csr, segment_*_csr, gather_csr | same | bounds that decrease are a ValueError |
| segment_coo, segment_*_coo, gather_coo | same | an unsorted index is a ValueError in segment_* |
| scatter_softmax, scatter_log_softmax, scatter_std | same | |
| scatter_logsumexp | same | NaN and infinity as torch.logsumexp, not dropped or cut |
"""

from .composite import scatter_log_softmax, scatter_logsumexp, scatter_softmax, scatter_std
from .scatter import (
    scatter,
    scatter_add,
    scatter_max,
    scatter_mean,
    scatter_min,
    scatter_mul,
    scatter_sum,
)
from .segment_coo import (
    gather_coo,
    segment_add_coo,
    segment_coo,
    segment_max_coo,
    segment_mean_coo,
    segment_min_coo,
    segment_sum_coo,
)
from .segment_csr import (
    gather_csr,
    segment_add_csr,
    segment_csr,
    segment_max_csr,
    segment_mean_csr,
    segment_min_csr,
    segment_sum_csr,
)

__version__ = "2.1.2"

__all__ = [
    "__version__",
    "gather_coo",
    "gather_csr",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
]
