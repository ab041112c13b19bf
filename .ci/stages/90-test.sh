make --no-print-directory test PYTEST_ARGS="--durations=15 --ignore=tests/metal --ignore=tests/metal_emu"
