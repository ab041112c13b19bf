"""Stand-ins for the libraries that third-party code imports.

`install("spconv")` makes `import spconv.pytorch` give sparse3d's stand-in; each is an ordinary
package too: `import sparse3d.compat.spconv.pytorch as spconv`.
"""

from ._install import available, install, uninstall

__all__ = ["available", "install", "uninstall"]
