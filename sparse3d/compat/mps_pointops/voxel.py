"""mps_pointops.voxel: occupied voxels and their means."""

from ...pointops.voxel import VoxelDownsample, Voxelization, voxel_downsample, voxelize

__all__ = ["VoxelDownsample", "Voxelization", "voxel_downsample", "voxelize"]
