# One process a core, one thread each: tests that are about threads set their own number.
OMP_NUM_THREADS=1 make --no-print-directory test PYTEST_ARGS="-q --durations=15 -n $(nproc) --dist worksteal"
