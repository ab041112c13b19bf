"""Stand-in for Pointcept's `pointops2`, the operators of Stratified Transformer, on any device.

Clouds lie one after the other; `offset` holds their inclusive ends, int32. Code imports
`pointops2.pointops`.

| name | status | difference |
|---|---|---|
| furthestsampling, knnquery, grouping, subtraction, aggregation | as in `pointops` | |
| interpolation, interpolation2, interpolation_v2 | same | missing neighbours weigh nothing |
| queryandgroup | same | missing neighbours are zeros, not the last point |
| attention_step1, attention_step2 and their v2 | same | any device; n_max is not limited |
| dot_prod_with_idx, attention_step2_with_rel_pos_value and their v2, v3 | same | as above |
| Divide2Patch | same | |
"""

from . import pointops

__version__ = "1.0"

__all__ = ["__version__", "pointops"]
