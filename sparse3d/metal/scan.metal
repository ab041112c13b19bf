// Counting, scanning, compacting and sorting, all stable and without a message between threadgroups inside a launch:
// every block counts, one threadgroup scans the counts, every block writes.

#define SP_BLOCK 1024    // elements a threadgroup handles
#ifndef SP_SCAN_THREADS  // its threads
#define SP_SCAN_THREADS 256
#endif
#define SP_EACH (SP_BLOCK / SP_SCAN_THREADS)  // elements a thread, in a row
#define SP_SCAN_SIMDS (SP_SCAN_THREADS / 32)

// What makes an element count: mode 0, a value that is not -1; mode 1, a value equal to its own position.
inline bool sp_counts(int value, uint position, uint mode) { return mode == 0 ? value >= 0 : value == int(position); }

// counts[segment * blocks + block] = counted elements of that block; segments of `length` values lie one after another.
kernel void sp_count(device const int* values [[buffer(0)]],  // [segments, length]
                     device uint* counts [[buffer(1)]],       // [segments, blocks]
                     constant uint& length [[buffer(2)]],
                     constant uint& mode [[buffer(3)]],
                     uint tid [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint sg [[simdgroup_index_in_threadgroup]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint2 grid [[threadgroups_per_grid]]) {
    threadgroup uint sums[SP_SCAN_SIMDS];
    uint mine = 0;
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group.x * SP_BLOCK + tid * SP_EACH + j;
        if (i < length && sp_counts(values[ulong(group.y) * length + i], i, mode)) ++mine;
    }
    uint total;
    sp_group_prefix(mine, sums, lane, sg, SP_SCAN_SIMDS, total);
    if (tid == 0) counts[group.y * grid.x + group.x] = total;
}

// Exclusive prefix sum of `values` in place by one threadgroup; values[n] becomes the total, which is returned.
inline uint sp_scan_all(device uint* values, uint n, threadgroup uint* sums, uint tid, uint lane, uint sg) {
    uint carry = 0;
    for (uint first = 0; first < n; first += SP_BLOCK) {
        uint part[SP_EACH], mine = 0;
        for (uint j = 0; j < SP_EACH; ++j) {
            const uint i = first + tid * SP_EACH + j;
            part[j] = i < n ? values[i] : 0u;
            mine += part[j];
        }
        uint total;
        uint at = carry + sp_group_prefix(mine, sums, lane, sg, SP_SCAN_SIMDS, total);
        for (uint j = 0; j < SP_EACH; ++j) {
            const uint i = first + tid * SP_EACH + j;
            if (i < n) values[i] = at;
            at += part[j];
        }
        carry += total;
    }
    if (tid == 0) values[n] = carry;
    return carry;
}

kernel void sp_scan(device uint* values [[buffer(0)]],  // [n + 1]
                    constant uint& n [[buffer(1)]],
                    uint tid [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint sums[SP_SCAN_SIMDS];
    sp_scan_all(values, n, sums, tid, lane, sg);
}

// The same for counts from sp_count, and where each segment begins.
kernel void sp_scan_splits(device uint* counts [[buffer(0)]],  // [segments * blocks + 1]
                           device long* splits [[buffer(1)]],  // [segments + 1]
                           constant uint& segments [[buffer(2)]],
                           constant uint& blocks [[buffer(3)]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint sums[SP_SCAN_SIMDS];
    const uint total = sp_scan_all(counts, segments * blocks, sums, tid, lane, sg);
    threadgroup_barrier(mem_flags::mem_device);
    for (uint t = tid; t <= segments; t += SP_SCAN_THREADS) splits[t] = long(t < segments ? counts[t * blocks] : total);
}

// The counted elements of a neighbour table, segment by segment: their values and their positions in the segment.
kernel void sp_compact_pairs(device const int* values [[buffer(0)]],    // [segments, length]
                             device const uint* offsets [[buffer(1)]],  // [segments * blocks + 1]
                             device int* src [[buffer(2)]],
                             device int* dst [[buffer(3)]],
                             constant uint& length [[buffer(4)]],
                             uint tid [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint sg [[simdgroup_index_in_threadgroup]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint2 grid [[threadgroups_per_grid]]) {
    threadgroup uint sums[SP_SCAN_SIMDS];
    int value[SP_EACH];
    uint mine = 0;
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group.x * SP_BLOCK + tid * SP_EACH + j;
        value[j] = i < length ? values[ulong(group.y) * length + i] : sp_absent;
        if (value[j] >= 0) ++mine;
    }
    uint total;
    uint at = offsets[group.y * grid.x + group.x] + sp_group_prefix(mine, sums, lane, sg, SP_SCAN_SIMDS, total);
    for (uint j = 0; j < SP_EACH; ++j) {
        if (value[j] < 0) continue;
        src[at] = value[j];
        dst[at] = int(group.x * SP_BLOCK + tid * SP_EACH + j);
        ++at;
    }
}

// Of values that own themselves: their positions in order, and at each such position its number in that order.
kernel void sp_compact_owners(device const int* values [[buffer(0)]],  // [length]
                              device const uint* offsets [[buffer(1)]],
                              device int* first [[buffer(2)]],  // [owners]
                              device int* rank [[buffer(3)]],   // [length]; written at owners only
                              constant uint& length [[buffer(4)]],
                              uint tid [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint sg [[simdgroup_index_in_threadgroup]],
                              uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint sums[SP_SCAN_SIMDS];
    bool owner[SP_EACH];
    uint mine = 0;
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group * SP_BLOCK + tid * SP_EACH + j;
        owner[j] = i < length && values[i] == int(i);
        if (owner[j]) ++mine;
    }
    uint total;
    uint at = offsets[group] + sp_group_prefix(mine, sums, lane, sg, SP_SCAN_SIMDS, total);
    for (uint j = 0; j < SP_EACH; ++j) {
        if (!owner[j]) continue;
        const uint i = group * SP_BLOCK + tid * SP_EACH + j;
        first[at] = int(i);
        rank[i] = int(at);
        ++at;
    }
}

// ---- radix sort, 4 bits a pass ----

// counts[digit * blocks + block]; scanned, they say where a block's keys of a digit go.
kernel void sp_sort_count(device const uint* keys [[buffer(0)]],  // [n]
                          device uint* counts [[buffer(1)]],      // [16, blocks]
                          constant uint& n [[buffer(2)]],
                          constant uint& shift [[buffer(3)]],
                          uint tid [[thread_index_in_threadgroup]],
                          uint group [[threadgroup_position_in_grid]],
                          uint blocks [[threadgroups_per_grid]]) {
    threadgroup atomic_uint digits[16];
    if (tid < 16) atomic_store_explicit(&digits[tid], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group * SP_BLOCK + tid * SP_EACH + j;
        if (i < n) atomic_fetch_add_explicit(&digits[keys[i] >> shift & 15u], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < 16) counts[tid * blocks + group] = atomic_load_explicit(&digits[tid], memory_order_relaxed);
}

kernel void sp_sort_scatter(device const uint* keys [[buffer(0)]],     // [n]
                            device const int* rows [[buffer(1)]],      // [n]; not read in the first pass
                            device const uint* offsets [[buffer(2)]],  // [16, blocks] scanned counts
                            device uint* keys_out [[buffer(3)]],
                            device int* rows_out [[buffer(4)]],
                            constant uint& n [[buffer(5)]],
                            constant uint& shift [[buffer(6)]],
                            constant uint& first_pass [[buffer(7)]],
                            uint tid [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]],
                            uint group [[threadgroup_position_in_grid]],
                            uint blocks [[threadgroups_per_grid]]) {
    threadgroup ushort before[16 * SP_SCAN_THREADS];  // keys of a digit in the threads before this one
    uint key[SP_EACH];
    for (uint d = 0; d < 16; ++d) before[d * SP_SCAN_THREADS + tid] = ushort(0);
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group * SP_BLOCK + tid * SP_EACH + j;
        if (i >= n) continue;
        key[j] = keys[i];
        before[(key[j] >> shift & 15u) * SP_SCAN_THREADS + tid] += ushort(1);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = sg; d < 16; d += SP_SCAN_SIMDS) {
        uint carry = 0;
        for (uint c = 0; c < SP_SCAN_THREADS; c += 32) {
            const uint v = before[d * SP_SCAN_THREADS + c + lane];
            const uint sum = simd_prefix_exclusive_sum(v);
            before[d * SP_SCAN_THREADS + c + lane] = ushort(carry + sum);
            carry += simd_sum(v);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < SP_EACH; ++j) {
        const uint i = group * SP_BLOCK + tid * SP_EACH + j;
        if (i >= n) continue;
        const uint d = key[j] >> shift & 15u, mine = d * SP_SCAN_THREADS + tid;
        const uint at = offsets[d * blocks + group] + before[mine];
        before[mine] += ushort(1);
        keys_out[at] = key[j];
        rows_out[at] = first_pass ? int(i) : rows[i];
    }
}

// bounds[s] = first position whose key is s or more; keys ascend.
kernel void sp_bounds(device const uint* keys [[buffer(0)]],  // [n]
                      device int* bounds [[buffer(1)]],       // [segments + 1]
                      constant uint& n [[buffer(2)]],
                      constant uint& segments [[buffer(3)]],
                      uint s [[thread_position_in_grid]]) {
    if (s > segments) return;
    uint low = 0, high = n;
    while (low < high) {
        const uint middle = low + (high - low) / 2;
        if (keys[middle] < s)
            low = middle + 1;
        else
            high = middle;
    }
    bounds[s] = int(low);
}
