#!/usr/bin/env bash
# All that needs an NVIDIA GPU, in one command and without a network:
#     bash bench/gpu_check.sh [OUT_FOLDER]
# The contract suite on the CUDA kernels and the tests of the GPU, the sanitizers on a small selection, the benches.
# Needs torch 2.11 or later with CUDA, pytest, hypothesis; uses pytest-xdist and compute-sanitizer where they are.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
out=$(realpath -m "${1:-out/gpu}")
mkdir -p "$out"
PYTHON=${PYTHON:-python3}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
failed=()

run() { # NAME COMMAND...: its output in OUT/NAME.log, its last lines here
    local name=$1 begin=$SECONDS
    shift
    echo "== $name"
    if "$@" >"$out/$name.log" 2>&1; then
        tail -n 3 "$out/$name.log"
    else
        failed+=("$name")
        tail -n 40 "$out/$name.log"
        echo "FAILED: $name (the whole of it: $out/$name.log)"
    fi
    echo "-- $((SECONDS - begin)) s"
}

"$PYTHON" - <<'END' || exit
from sparse3d import _registry

reason = _registry.load("cuda")
raise SystemExit(f"nothing to check here: {reason}" if reason else 0)
END

suite=("$PYTHON" -m pytest -q -p no:cacheprovider)
"$PYTHON" -c 'import xdist' 2>/dev/null && spread=(-n 8) || spread=()

run doctor "$PYTHON" -m sparse3d doctor
run device "${suite[@]}" tests/cuda
run contract "${suite[@]}" "${spread[@]}" --backend cuda tests/contract tests/ops tests/pointops

# Every tensor an allocation of its own, so that memcheck sees past the end of each.
selection='maps_equal or (sort_is_stable and 513 and 27) or ops_equal and small or metal_convolution and small or point_operators or many_groups or (indexed and lattice)'
for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
        run "$tool" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "${suite[@]}" tests/cuda/test_device.py -k "($selection) and not 20000 and not wide and not empty"
        grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$tool.log"
    else
        echo "== $tool: no compute-sanitizer here, not run"
    fi
done

if command -v compute-sanitizer >/dev/null; then
    run memcheck_triton env PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 150 compute-sanitizer --tool memcheck \
        --error-exitcode 9 "${suite[@]}" tests/cuda/test_triton.py -k 'tiles_hold or pointwise_layer or nothing or four_axes'
    grep 'ERROR SUMMARY' "$out/memcheck_triton.log"
fi

run bench_maps_points "$PYTHON" bench/bench_cuda.py --json "$out/cuda.json"
cat "$out/bench_maps_points.log"
if [[ -f bench/bench_gpu.py ]]; then
    run bench_gpu "$PYTHON" bench/bench_gpu.py --json "$out/gpu.json"
fi
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo "all passed"
