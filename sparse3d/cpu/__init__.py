"""CPU kernels of the sparse engine: native code behind a plain C ABI.

Importing this package attaches the kernels to their operators; it raises `BackendUnavailable` where
the native library is missing, and the torch references serve instead.
"""

from . import _library as _library
from . import conv as conv
from . import coordinates as coordinates
from . import kernel_map as kernel_map
