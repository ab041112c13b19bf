"""Contracts of the sparse engine. Each module reads as a specification; kernels attach from the
backend packages."""

from . import conv, coordinates, dense, kernel_map, norm, pool, segment, voxelize

__all__ = ["conv", "coordinates", "dense", "kernel_map", "norm", "pool", "segment", "voxelize"]
