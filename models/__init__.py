"""Networks, written the way a user would: `import sparse3d.nn as spnn`."""
