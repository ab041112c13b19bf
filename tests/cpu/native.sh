#!/usr/bin/env bash
# Sourced by the scripts beside it: builds the engine and the drivers with extra compiler flags. AVX-512 and AMX compile to "not here"
# unless ALL_SETS is set.

# build NAME COMPILER FLAGS...: leaves build/native/NAME/driver, driver_points and driver_norm.
build() {
    export ALL_SETS=${ALL_SETS:-}
    local name=$1 compiler=$2
    shift 2
    local folder=build/native/$name
    mkdir -p "$folder"
    local sources
    sources=$(ls sparse3d/cpu/csrc/*.cpp tests/cpu/driver*.cpp)
    printf '%s\n' $sources | xargs -P "$(nproc)" -I{} bash -c '
        set -e
        source=$1 folder=$2 compiler=$3
        shift 3
        flags=() avx2="-mavx2 -mfma -mf16c" avx512="-mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-uninitialized -Wno-maybe-uninitialized"
        if [[ $("$compiler" -dumpmachine) == x86_64* ]]; then
            case $source in
                *_avx2.cpp) flags=($avx2) ;;
                *_avx512.cpp) [[ -n ${ALL_SETS:-} ]] && flags=($avx2 $avx512) ;;
                *_avx512bf16.cpp) [[ -n ${ALL_SETS:-} ]] && flags=($avx2 $avx512 -mavx512bf16) ;;
                *_amx.cpp) [[ -n ${ALL_SETS:-} ]] && flags=($avx2 $avx512 -mavx512bf16 -mamx-tile -mamx-bf16) ;;
            esac
        fi
        [[ $source == *point* ]] && flags+=(-ffp-contract=off)
        exec "$compiler" -std=c++17 -Wall -Wextra "$@" "${flags[@]}" -c "$source" -o "$folder/$(basename "$source" .cpp).o"
    ' _ {} "$folder" "$compiler" "$@"
    local program
    for program in driver driver_points driver_norm; do
        "$compiler" "$@" $(ls "$folder"/*.o | grep -v /driver) "$folder/$program.o" -pthread -o "$folder/$program"
    done
}
