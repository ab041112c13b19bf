# The .metal kernels: the harness, every kernel against the reference through both front ends, traffic bounds,
# the self-test. The contract suite runs through the strict front end in 90-test.sh; here it runs through the other one,
# from another schedule, and a third time on its small cases.
tests=(tests/metal_emu tests/metal)
"$BIN/python" -m pytest -q -n 2 "${tests[@]}" 2>/dev/null || "$BIN/python" -m pytest -q "${tests[@]}"
