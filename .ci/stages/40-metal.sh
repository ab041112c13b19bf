# Metal without a Mac: the harness and every kernel through both front ends, and the whole contract suite twice, each
# time through another front end and from another schedule. Two processes; the second also has the kernels' own tests.
suite() {
    "$BIN/python" -m pytest -q -p no:cacheprovider tests/contract tests/ops --backend metal "$@"
}
suite --metal-front clang tests/metal_emu >metal-clang.log 2>&1 &
clang=$!
suite --metal-front gcc --metal-seed 1000 tests/metal || failed=1
wait "$clang" || failed=1
cat metal-clang.log && rm metal-clang.log
[[ -z ${failed:-} ]]
