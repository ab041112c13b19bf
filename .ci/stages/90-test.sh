# One process a core, one thread each: tests that are about threads set their own number.
# Stage 40 has run the Metal kernels.
metal="--ignore=tests/metal --ignore=tests/metal_emu"
OMP_NUM_THREADS=1 make --no-print-directory test \
    PYTEST_ARGS="-q --durations=15 -n $(nproc) --dist worksteal $metal"
