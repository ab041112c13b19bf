"""Looking at point clouds: one HTML page that needs no network, a picture, or Open3D's window."""

from sparse3d.view.page import write_page
from sparse3d.view.scene import Scene

__all__ = ["Scene", "write_page"]
