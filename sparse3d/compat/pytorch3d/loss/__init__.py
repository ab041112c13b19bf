"""pytorch3d.loss: chamfer_distance; the losses of meshes refuse when called."""

from .._refused import refusals
from .chamfer import chamfer_distance

_REST = """
mesh_edge_loss mesh_laplacian_smoothing mesh_normal_consistency point_mesh_edge_distance
point_mesh_face_distance
"""
globals().update(refusals("loss", _REST))

__all__ = ["chamfer_distance"]
