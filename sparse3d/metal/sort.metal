// Stable radix sort, up to 9 bits a pass, one launch a pass, without a message between threadgroups inside a launch.
//
// An item is a key in the high word and a row in the low one. A threadgroup handles a block of `each` items in a row,
// each of its simdgroups a stretch of them; `counts` has how many items of each block have each digit. A pass reads
// those of its own digit, and counts the digits of the next where its items go.

#ifndef SP_SORT_THREADS  // a power of two, at most SP_DIGITS, which divides `each`
#define SP_SORT_THREADS 512
#endif
#define SP_SORT_SIMDS (SP_SORT_THREADS / 32)
#define SP_DIGITS 512                         // most digits
#define SP_OWN (SP_DIGITS / SP_SORT_THREADS)  // digits of a thread, in a row
#define SP_AHEAD 16                           // counts that are loaded at once

inline uint sp_digit(ulong item, uint pass, uint width) {
    return uint(item >> (32u + pass * width)) & ((1u << width) - 1u);
}

inline uint sp_votes(bool vote) { return uint(ulong(simd_ballot(vote))); }

// The lanes of `lanes` whose value has the same low bits as this lane's.
inline uint sp_alike(uint lanes, uint value, uint bits) {
    for (uint b = 0; b < bits; ++b) {
        const bool set = (value >> b & 1u) != 0u;
        const uint votes = sp_votes(set);
        lanes &= set ? votes : ~votes;
    }
    return lanes;
}

// Items of keys, the counts of the first pass, and zeros for those of the others.
kernel void sp_sort_items(device const uint* keys [[buffer(0)]],  // [n]
                          device ulong* items [[buffer(1)]],      // [2, n]; the first half is written
                          device uint* counts [[buffer(2)]],      // [passes, blocks, 1 << width]
                          constant uint& n [[buffer(3)]],
                          constant uint& each [[buffer(4)]],
                          constant uint& width [[buffer(5)]],
                          constant uint& passes [[buffer(6)]],
                          uint tid [[thread_index_in_threadgroup]],
                          uint group [[threadgroup_position_in_grid]],
                          uint blocks [[threadgroups_per_grid]]) {
    threadgroup atomic_uint seen[SP_DIGITS];
    for (uint d = tid; d < SP_DIGITS; d += SP_SORT_THREADS) atomic_store_explicit(&seen[d], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = group * each + tid; i < min(n, (group + 1) * each); i += SP_SORT_THREADS) {
        const ulong item = ulong(keys[i]) << 32 | ulong(i);
        items[i] = item;
        atomic_fetch_add_explicit(&seen[sp_digit(item, 0, width)], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint digits = 1u << width;
    for (uint d = tid; d < digits; d += SP_SORT_THREADS) {
        counts[ulong(group) * digits + d] = atomic_load_explicit(&seen[d], memory_order_relaxed);
        for (uint p = 1; p < passes; ++p) counts[(ulong(p) * blocks + group) * digits + d] = 0u;
    }
}

// Items move from half `pass & 1` of `items` to the other, in the order of this pass's digit.
kernel void sp_sort_pass(device ulong* items [[buffer(0)]],         // [2, n]
                         device atomic_uint* counts [[buffer(1)]],  // [passes, blocks, 1 << width]
                         constant uint& n [[buffer(2)]],
                         constant uint& each [[buffer(3)]],
                         constant uint& width [[buffer(4)]],
                         constant uint& passes [[buffer(5)]],
                         constant uint& pass [[buffer(6)]],
                         uint tid [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]],
                         uint group [[threadgroup_position_in_grid]],
                         uint blocks [[threadgroups_per_grid]]) {
    threadgroup uint begins[SP_DIGITS];                    // where this block's items of a digit go
    threadgroup ushort before[SP_SORT_SIMDS * SP_DIGITS];  // items of a digit in the stretches before
    threadgroup uint sums[SP_SORT_SIMDS];
    const uint digits = 1u << width, below = (1u << lane) - 1u;
    const uint stretch = each / SP_SORT_SIMDS, first = group * each + sg * stretch, end = min(n, first + stretch);
    device const ulong* from = items + ulong(pass & 1u) * n;
    device ulong* to = items + ulong(~pass & 1u) * n;
    for (uint d = tid; d < SP_SORT_SIMDS * digits; d += SP_SORT_THREADS) before[d] = ushort(0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = first; i < end; i += 32) {
        const bool there = i + lane < end;
        const uint digit = there ? sp_digit(from[i + lane], pass, width) : 0u;
        const uint alike = sp_alike(sp_votes(there), digit, width);
        if (there && (alike & below) == 0u) before[sg * digits + digit] += ushort(popcount(alike));
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint mine = 0, earlier[SP_OWN], all[SP_OWN];
    for (uint j = 0; j < SP_OWN; ++j) {
        const uint digit = tid * SP_OWN + j;
        earlier[j] = all[j] = 0u;
        if (digit >= digits) continue;
        for (uint b = 0; b < blocks; b += SP_AHEAD) {
            uint found[SP_AHEAD];
            for (uint k = 0; k < SP_AHEAD; ++k) {
                const ulong at = (ulong(pass) * blocks + b + k) * digits + digit;
                found[k] = b + k < blocks ? atomic_load_explicit(&counts[at], memory_order_relaxed) : 0u;
            }
            for (uint k = 0; k < SP_AHEAD; ++k) {
                all[j] += found[k];
                earlier[j] += b + k < group ? found[k] : 0u;
            }
        }
        mine += all[j];
        uint carry = 0;
        for (uint s = 0; s < SP_SORT_SIMDS; ++s) {
            const uint here = before[s * digits + digit];
            before[s * digits + digit] = ushort(carry);
            carry += here;
        }
    }
    uint total;
    uint start = sp_group_prefix(mine, sums, lane, sg, SP_SORT_SIMDS, total);
    for (uint j = 0; j < SP_OWN; ++j) {
        begins[tid * SP_OWN + j] = start + earlier[j];
        start += all[j];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = first; i < end; i += 32) {
        const bool there = i + lane < end;
        const ulong item = there ? from[i + lane] : 0ul;
        const uint digit = sp_digit(item, pass, width);
        const uint alike = sp_alike(sp_votes(there), digit, width), rank = popcount(alike & below);
        const uint place = begins[digit] + before[sg * digits + digit] + rank;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (there && rank == 0u) before[sg * digits + digit] += ushort(popcount(alike));
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (there) to[place] = item;
        if (pass + 1u == passes) continue;
        // Items of a digit stand side by side, in two blocks at most: one addition for those counted together.
        const uint next = sp_digit(item, pass + 1u, width), block = place / each;
        const uint together = sp_alike(sp_alike(alike, next, width), block, 1);
        if (!there || (together & below) != 0u) continue;
        const ulong at = (ulong(pass + 1u) * blocks + block) * digits + next;
        atomic_fetch_add_explicit(&counts[at], popcount(together), memory_order_relaxed);
    }
}

kernel void sp_sort_split(device const ulong* items [[buffer(0)]],  // [2, n]; half `half_at` is read
                          device uint* keys [[buffer(1)]],          // [n]
                          device int* rows [[buffer(2)]],           // [n]
                          constant uint& n [[buffer(3)]],
                          constant uint& half_at [[buffer(4)]],
                          uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    const ulong item = items[ulong(half_at) * n + i];
    keys[i] = uint(item >> 32);
    rows[i] = int(uint(item));
}
