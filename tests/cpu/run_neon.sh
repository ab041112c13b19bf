#!/usr/bin/env bash
# The 64-bit Arm path, every Mac's CPU path, cross-compiled and run on small cases under an emulator.
# Needs g++-aarch64-linux-gnu and qemu-user; without them it says so and passes, unless CI is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/cpu/native.sh

for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$tool" >/dev/null && continue
    echo "NEON not run: $tool is missing (apt-get install g++-aarch64-linux-gnu qemu-user)"
    [[ -z ${CI:-} ]] || exit 1
    exit 0
done
build neon aarch64-linux-gnu-g++ -O2 -static
# qemu-user cannot fork a process that has threads.
qemu-aarch64 build/native/neon/driver 5 40 no-fork
qemu-aarch64 build/native/neon/driver_bricks
qemu-aarch64 build/native/neon/driver_points 0 1200
qemu-aarch64 build/native/neon/driver_norm 5 600
