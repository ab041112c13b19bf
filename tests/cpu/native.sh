#!/usr/bin/env bash
# Sourced by the scripts beside it: builds the engine and driver.cpp with extra compiler flags.
# The point kernels are left out (driver.cpp does not call them), and files of instruction sets whose
# flags are not given compile to "not here".

# build NAME COMPILER FLAGS...: leaves build/native/NAME/driver.
build() {
    local name=$1 compiler=$2
    shift 2
    local folder=build/native/$name
    mkdir -p "$folder"
    local sources
    sources=$(ls sparse3d/cpu/csrc/*.cpp tests/cpu/driver.cpp | grep -v /point_)
    printf '%s\n' $sources | xargs -P "$(nproc)" -I{} bash -c '
        set -e
        source=$1 folder=$2 compiler=$3
        shift 3
        flags=()
        case $source in
            *_avx2.cpp) case $compiler in *aarch64*) ;; *) [[ $(uname -m) == x86_64 ]] && flags=(-mavx2 -mfma -mf16c) ;; esac ;;
        esac
        exec "$compiler" -std=c++17 -Wall -Wextra "$@" "${flags[@]}" -c "$source" -o "$folder/$(basename "$source" .cpp).o"
    ' _ {} "$folder" "$compiler" "$@"
    "$compiler" "$@" "$folder"/*.o -pthread -o "$folder/driver"
}
