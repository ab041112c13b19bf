"""`cumm.constants`: where the package lies, and that no kernel of cumm's is here."""

from pathlib import Path

__all__ = ["CUMM_CPU_ONLY_BUILD", "PACKAGE_ROOT"]

PACKAGE_ROOT = Path(__file__).parent.resolve()
CUMM_CPU_ONLY_BUILD = True
