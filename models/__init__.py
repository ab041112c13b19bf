"""Networks written with sparse3d's public layers, as a user would."""

from typing import TYPE_CHECKING

from sparse3d._lazy import submodules

if TYPE_CHECKING:
    from sparse3d.models import dgcnn as dgcnn
    from sparse3d.models import minkowski_nets as minkowski_nets
    from sparse3d.models import minkunet as minkunet
    from sparse3d.models import part_unet as part_unet
    from sparse3d.models import pillar_backbone as pillar_backbone
    from sparse3d.models import point_mae as point_mae
    from sparse3d.models import point_transformer as point_transformer
    from sparse3d.models import pointnet2 as pointnet2
    from sparse3d.models import spunet as spunet
    from sparse3d.models import spvcnn as spvcnn
    from sparse3d.models import voxel_backbone as voxel_backbone
else:
    _LATE = (
        "dgcnn",
        "minkowski_nets",
        "minkunet",
        "part_unet",
        "pillar_backbone",
        "point_mae",
        "point_transformer",
        "pointnet2",
        "spunet",
        "spvcnn",
        "voxel_backbone",
    )
    __getattr__, __dir__ = submodules(__name__, _LATE)
