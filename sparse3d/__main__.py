"""`python -m sparse3d` is the `sparse3d` command."""

import sys

from sparse3d._entry import main

sys.exit(main())
