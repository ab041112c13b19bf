# Metal without a Mac: the harness and every kernel through both front ends, and the whole contract suite twice, through
# each front end, every launch under three schedules; every kernel at the sizes where its groups end.
# The layers that the peers recorded run through one, under one; the public bug reports, drawn cases and most point
# clouds at night.
# Jobs of one core each, the longest first, two at a time: whoever is done takes the next.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
job() {
    local name=$1 status=0 began=$SECONDS
    shift
    "$BIN/python" -m pytest -q -p no:cacheprovider "$@" >"$logs/$name" 2>&1 || status=$?
    echo "-- $name: $began to $SECONDS s"
    return "$status"
}
clang=(--backend metal --metal-schedules 3 --metal-front clang)
gcc=(--backend metal --metal-schedules 3 --metal-front gcc --metal-seed 1000)
# Tests that take no backend launch nothing here: the last stage runs them.
launching=(-k metal)
next() {
    case $1 in
    0) job operators-clang tests/ops tests/pointops "${launching[@]}" "${clang[@]}" ;;
    1) job kernels tests/metal/test_kernels.py tests/metal/test_index.py ;;
    2) job pretend tests/metal/test_pretend.py tests/metal/test_pretend_training.py tests/metal/test_pretend_peers.py ;;
    3) job operators-gcc tests/ops tests/pointops "${launching[@]}" "${gcc[@]}" ;;
    4) job harness tests/metal_emu tests/metal/test_traffic.py tests/metal/test_minkunet.py tests/metal/test_selftest.py ;;
    5) job contract-clang tests/contract "${launching[@]}" "${clang[@]}" ;;
    6) job contract-gcc tests/contract "${launching[@]}" "${gcc[@]}" ;;
    7) job sizes tests/metal/test_sizes.py ;;
    8) job recorded tests/compat/test_spconv.py tests/compat/test_minkowski_golden.py \
        tests/compat/test_torchsparse_golden.py "${gcc[@]}" ;;
    esac
}
failed=0
for number in {0..8}; do
    ((number < 2)) || wait -n || failed=1
    next "$number" &
done
for _ in 1 2; do
    wait -n || failed=1
done
for log in "$logs"/*; do
    echo "-- ${log##*/}"
    cat "$log"
done
exit "$failed"
