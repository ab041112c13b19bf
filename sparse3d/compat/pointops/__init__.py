"""Stand-in for Pointcept's `pointops`, both generations of names, on any device.

Clouds lie one after the other; `offset` holds their inclusive ends, int32.

| name | status | difference |
|---|---|---|
| farthest_point_sampling, furthestsampling | same rule | CUDA may fuse multiply-adds |
| knn_query, knnquery | same | nsample not limited to 128; ties by index |
| ball_query | sorted, true distances | the peer sorts a heap it never built; indices as distances |
| random_ball_query | same | torch's generator; no limit of candidates |
| grouping, grouping2, *_query_and_group, queryandgroup | same | |
| interpolation, interpolation2 | same | missing neighbours weigh nothing, not the last point |
| subtraction, aggregation, attention_*_step | same | any device, second derivatives |
| batch2offset, offset2batch | same | |
"""

from .aggregation import aggregation
from .attention import attention_fusion_step, attention_relation_step
from .grouping import grouping, grouping2
from .interpolation import interpolation, interpolation2
from .query import ball_query, knn_query, knnquery, random_ball_query
from .sampling import farthest_point_sampling, furthestsampling
from .subtraction import subtraction
from .utils import (
    ball_query_and_group,
    batch2offset,
    knn_query_and_group,
    offset2batch,
    query_and_group,
    queryandgroup,
)

__version__ = "1.0"

__all__ = [
    "__version__",
    "aggregation",
    "attention_fusion_step",
    "attention_relation_step",
    "ball_query",
    "ball_query_and_group",
    "batch2offset",
    "farthest_point_sampling",
    "furthestsampling",
    "grouping",
    "grouping2",
    "interpolation",
    "interpolation2",
    "knn_query",
    "knn_query_and_group",
    "knnquery",
    "offset2batch",
    "query_and_group",
    "queryandgroup",
    "random_ball_query",
    "subtraction",
]
