"""`cumm.constants`: where the package lies, and that no kernel of cumm's is here."""

from pathlib import Path

__all__ = ["CUMM_CPU_ONLY_BUILD", "CUMM_MAXIMUM_NVRTC_CONV_NDIM", "PACKAGE_ROOT"]

PACKAGE_ROOT = Path(__file__).parent.resolve()
CUMM_CPU_ONLY_BUILD = True
CUMM_MAXIMUM_NVRTC_CONV_NDIM = 3
