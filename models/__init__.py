"""Networks written with sparse3d's public layers, as a user would."""
