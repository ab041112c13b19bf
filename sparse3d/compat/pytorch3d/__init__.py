"""Stand-in for pytorch3d 0.7.9: point operators of `pytorch3d.ops` and `loss.chamfer_distance`.

| name | status | difference |
|---|---|---|
| ops.ball_query, knn_points, knn_gather | same | lengths or idx beyond the cloud: ValueError |
| ops.sample_farthest_points | same | random starts come from torch's generator |
| loss.chamfer_distance | same | all-zero weights: zeros of the reduced shape; empty clouds add 0 |
| other names of ops and loss | refused | meshes, cameras, volumes: NotImplementedError |
| everything else | not here | renderers, structures and the rest of pytorch3d |
"""

from . import loss, ops

__version__ = "0.7.9"

__all__ = ["__version__", "loss", "ops"]
