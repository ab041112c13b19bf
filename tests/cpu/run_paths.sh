#!/usr/bin/env bash
# One static binary with every instruction set that the compiler knows, for machines that have what
# this one lacks: build/native/paths/driver PATH, with 1 portable, 2 AVX2, 3 AVX-512, 4 AMX, 6 AVX-512 with bfloat16. Runs
# those that work here and says which do not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/cpu/native.sh

ALL_SETS=1 build paths "${CXX:-g++}" -O2 -static
for path in 1 2 3 4 6; do
    build/native/paths/driver "$path" 200
    build/native/paths/driver_norm "$path"
done
