make --no-print-directory test PYTEST_ARGS="--durations=15"
