# Metal without a Mac: the harness and every kernel through both front ends, and the whole contract suite twice, each
# time through another front end and from another schedule. Two processes of about equal length.
suite() {
    "$BIN/python" -m pytest -q -p no:cacheprovider tests/contract tests/ops --backend metal "$@"
}
clang_too=(tests/metal_emu tests/metal/test_traffic.py tests/metal/test_minkunet.py tests/metal/test_selftest.py)
suite --metal-front clang "${clang_too[@]}" >metal-clang.log 2>&1 &
clang=$!
suite --metal-front gcc --metal-seed 1000 tests/metal/test_kernels.py || failed=1
wait "$clang" || failed=1
cat metal-clang.log && rm metal-clang.log
[[ -z ${failed:-} ]]
