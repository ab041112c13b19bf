"""The case table: clouds, geometries and calls that every operator has to survive.

One table for the contract tests, the self-test and the benches, so that a case found once is asked
everywhere. `clouds` knows nothing of sparse3d, so that the oracle's tests may read it.
"""
