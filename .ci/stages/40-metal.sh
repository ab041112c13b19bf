# Metal without a Mac: the harness and every kernel through both front ends, and the whole contract suite twice, through
# each front end, launches of up to 2,048 threads under three schedules. The layers that the peers recorded run
# through one, the public bug reports at night. Two processes of about equal length.
suite() {
    "$BIN/python" -m pytest -q -p no:cacheprovider tests/contract tests/ops tests/pointops --backend metal \
        --metal-schedules 3 "$@"
}
recorded=(tests/compat/test_spconv.py tests/compat/test_minkowski_golden.py tests/compat/test_torchsparse_golden.py)
clang_too=(tests/metal_emu tests/metal/test_traffic.py tests/metal/test_minkunet.py tests/metal/test_selftest.py
    tests/metal/test_pretend.py)
suite --metal-front clang "${clang_too[@]}" >metal-clang.log 2>&1 &
clang=$!
suite --metal-front gcc --metal-seed 1000 tests/metal/test_kernels.py tests/metal/test_index.py "${recorded[@]}" || failed=1
wait "$clang" || failed=1
cat metal-clang.log && rm metal-clang.log
[[ -z ${failed:-} ]]
