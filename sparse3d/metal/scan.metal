// Counting, scanning and compacting, all stable and without a message between threadgroups inside a launch:
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
