"""pytorch3d.ops: neighbours and farthest points of padded clouds; the rest refuses when called."""

from .._refused import refusals
from .ball_query import ball_query
from .knn import knn_gather, knn_points
from .sample_farthest_points import sample_farthest_points
from .utils import masked_gather

_REST = """
GraphConv SubdivideMeshes add_pointclouds_to_volumes
add_points_features_to_volume_densities_features box3d_overlap convert_pointclouds_to_tensor
corresponding_cameras_alignment corresponding_points_alignment cot_laplacian cubify efficient_pnp
estimate_pointcloud_local_coord_frames estimate_pointcloud_normals eyes get_point_covariances
interpolate_face_attributes is_pointclouds iterative_closest_point laplacian
mesh_face_areas_normals norm_laplacian packed_to_padded padded_to_packed
sample_points_from_meshes taubin_smoothing vert_align wmean
"""
globals().update(refusals("ops", _REST))

__all__ = ["ball_query", "knn_gather", "knn_points", "masked_gather", "sample_farthest_points"]
