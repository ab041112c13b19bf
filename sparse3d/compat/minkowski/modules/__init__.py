"""`MinkowskiEngine.modules`."""
