"""Stand-in for pointnet2_ops 3.0 (erikwijmans): utilities and modules on any device.

| name | status | difference |
|---|---|---|
| furthest_point_sample | same rule | CUDA may fuse multiply-adds: ties within rounding can differ |
| gather_operation, grouping_operation | same | any floating dtype |
| three_nn, three_interpolate | same | weights receive their true gradient, not zero |
| ball_query | same | an index beyond the cloud is a ValueError |
| QueryAndGroup, GroupAll | same | |
| PointnetSAModule(MSG), PointnetFPModule | same parameters | |
"""

from . import pointnet2_modules, pointnet2_utils

__version__ = "3.0.0"

__all__ = ["__version__", "pointnet2_modules", "pointnet2_utils"]
