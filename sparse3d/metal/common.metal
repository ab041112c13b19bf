// Put before every other file: coordinates, the coordinate table, sums over a threadgroup.
// Functions here are inline and start with sp_; macros start with SP_.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
// Fast math, which a user can switch on for all shaders, would drop the rules of NaN and infinity.
#pragma METAL fp math_mode(safe)

#ifndef SP_ELEM  // element type of features: float, half or bfloat
#define SP_ELEM float
#endif
#ifndef SP_COLS  // columns of a coordinate: the batch and 1 to 4 axes
#define SP_COLS 4
#endif
#define SP_AXES (SP_COLS - 1)
#define SP_UNROLL _Pragma("clang loop unroll(full)")

constant int sp_absent = -1;

struct SpCoord {
    int v[SP_COLS];
};

inline SpCoord sp_load(device const int* coords, uint row) {
    SpCoord c;
    for (uint d = 0; d < SP_COLS; ++d) c.v[d] = coords[ulong(row) * SP_COLS + d];
    return c;
}

inline bool sp_same(SpCoord a, SpCoord b) {
    bool same = true;
    for (uint d = 0; d < SP_COLS; ++d) same = same && a.v[d] == b.v[d];
    return same;
}

inline uint sp_hash(SpCoord c) {
    uint h = 0x9e3779b9u;
    for (uint d = 0; d < SP_COLS; ++d) {
        h = (h ^ uint(c.v[d])) * 0x85ebca6bu;
        h ^= h >> 15;
    }
    h *= 0xc2b2ae35u;
    return h ^ h >> 13;
}

inline int sp_floor_div(int a, int b) {
    const int q = a / b;
    return q * b > a ? q - 1 : q;
}

// Row that owns `key` in a finished table, or -1. A slot holds a row; the key is read from the coordinates.
inline int sp_find(device const int* coords, device const int* table, uint mask, SpCoord key) {
    uint slot = sp_hash(key) & mask;
    for (uint probes = 0; probes <= mask; ++probes) {
        const int owner = table[slot];
        if (owner == sp_absent) break;
        if (sp_same(sp_load(coords, uint(owner)), key)) return owner;
        slot = (slot + 1) & mask;
    }
    return sp_absent;
}

// Tap number to steps along the axes: row-major, last axis fastest.
inline SpCoord sp_tap(uint tap, constant long* kernel_size) {
    SpCoord t;
    t.v[0] = 0;
    for (int d = SP_AXES - 1; d >= 0; --d) {
        const uint k = uint(kernel_size[d]);
        t.v[d + 1] = int(tap % k);
        tap /= k;
    }
    return t;
}

// Sum of `value` over the threads before this one, and over all of them. Every thread of the group must call it;
// `sums` holds one number a simdgroup and may be used again after the call.
inline uint sp_group_prefix(uint value,
                            threadgroup uint* sums,
                            uint lane,
                            uint sg,
                            uint simdgroups,
                            thread uint& total) {
    const uint before = simd_prefix_exclusive_sum(value);
    const uint all = simd_sum(value);
    if (lane == 0) sums[sg] = all;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint offset = 0;
    total = 0;
    for (uint s = 0; s < simdgroups; ++s) {
        if (s < sg) offset += sums[s];
        total += sums[s];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return offset + before;
}
