"""A street-scan simulator: labelled lidar scans from a seed, no licence needed."""

from sparse3d.data.simulate.sensor import Sensor
from sparse3d.data.simulate.street import RAW_IDS, SimulatedScan, random_sensor, simulate

__all__ = ["RAW_IDS", "Sensor", "SimulatedScan", "random_sensor", "simulate"]
