"""Contracts of the sparse engine. Each module reads as a specification; kernels attach from the
backend packages."""
