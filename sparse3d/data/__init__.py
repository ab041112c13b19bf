"""Lidar scans in and labels out: readers, label maps, scores, voxels, and a street simulator."""

from sparse3d.data.cloud import PointCloud
from sparse3d.data.dataset import SPLITS, Sample, SemanticKITTI
from sparse3d.data.files import write_labels, write_ply, write_scan
from sparse3d.data.grid import Grid, represent, to_grid
from sparse3d.data.kitti import Scan, ScanError, read_labels, read_scan
from sparse3d.data.metrics import Confusion
from sparse3d.data.readers import read_points
from sparse3d.data.semantic_kitti import (
    CLASS_NAMES,
    COLORS,
    LABEL_MAPS,
    LabelMap,
    colors_of,
    conflicts,
)
from sparse3d.data.simulate import Sensor, SimulatedScan, random_sensor, simulate
from sparse3d.data.terrain import height_above_ground

__all__ = [
    "CLASS_NAMES",
    "COLORS",
    "LABEL_MAPS",
    "SPLITS",
    "Confusion",
    "Grid",
    "LabelMap",
    "PointCloud",
    "Sample",
    "Scan",
    "ScanError",
    "SemanticKITTI",
    "Sensor",
    "SimulatedScan",
    "colors_of",
    "conflicts",
    "height_above_ground",
    "random_sensor",
    "read_labels",
    "read_points",
    "read_scan",
    "represent",
    "simulate",
    "to_grid",
    "write_labels",
    "write_ply",
    "write_scan",
]
