#!/usr/bin/env bash
# The native engine under the thread sanitizer, then under those of addresses and undefined behaviour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/cpu/native.sh

build thread "${CXX:-g++}" -O1 -g -fsanitize=thread
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/native/thread/driver 0 100 no-fork # the sanitizer itself does not survive a fork
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/native/thread/driver_bricks
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/native/thread/driver_points 0 1200
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/native/thread/driver_norm 0 600

build address "${CXX:-g++}" -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
UBSAN_OPTIONS=print_stacktrace=1 build/native/address/driver_bricks
for path in 0 1; do # the machine's own, the portable one
    UBSAN_OPTIONS=print_stacktrace=1 build/native/address/driver "$path" 100
    UBSAN_OPTIONS=print_stacktrace=1 build/native/address/driver_points "$path" 1200
    UBSAN_OPTIONS=print_stacktrace=1 build/native/address/driver_norm "$path" 600
done
