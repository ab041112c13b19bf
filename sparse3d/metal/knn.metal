// k nearest neighbours by brute force: a simdgroup a query, 32 points at a time. The best lie sorted by (distance, row)
// in registers, SP_SLOTS a lane: entry of rank r is slot r / 32 of lane r % 32. Points come in ascending row, so that a
// later point of equal distance never moves an earlier one. No threadgroup memory, no barriers.
// Distances: every operation rounded on its own, in order of the axes.
#pragma clang fp contract(off)

#ifndef SP_SLOTS  // (k + 31) / 32
#define SP_SLOTS 1
#endif
#ifndef SP_METRIC  // 0 squared, 1 Euclidean, 2 L1
#define SP_METRIC 0
#endif
#define SP_CLOUD 5  // columns of the table: query begin and end, reference begin and end, base

// The last cloud whose queries begin at or before `query`.
inline uint sp_cloud_of(device const int* table, uint clouds, uint query) {
    uint low = 0, high = clouds;
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (table[middle * SP_CLOUD] <= int(query))
            low = middle;
        else
            high = middle;
    }
    return low;
}

inline float sp_distance(device const float* query, device const float* point, uint dim) {
    float sum = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float difference = query[axis] - point[axis];
        const float term = SP_METRIC == 2 ? fabs(difference) : difference * difference;
        sum = axis == 0 ? term : sum + term;
    }
    return sum;
}

kernel void sp_knn(device const float* queries [[buffer(0)]],  // [queries, dim]
                   device const float* points [[buffer(1)]],   // [points, dim]
                   device const int* table [[buffer(2)]],      // [clouds, SP_CLOUD]
                   device float* distances [[buffer(3)]],      // [queries, k]
                   device long* indices [[buffer(4)]],         // [queries, k]
                   constant uint& clouds [[buffer(5)]],
                   constant uint& dim [[buffer(6)]],
                   constant uint& k [[buffer(7)]],
                   constant uint& first_query [[buffer(8)]],
                   constant uint& last_query [[buffer(9)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]]) {
    const uint query = first_query + group * simdgroups + sg;
    if (query >= last_query) return;  // the whole simdgroup
    device const int* cloud = table + sp_cloud_of(table, clouds, query) * SP_CLOUD;
    const bool inside = int(query) >= cloud[0] && int(query) < cloud[1];
    const uint begin = inside ? uint(cloud[2]) : 0u;
    const uint end = inside ? uint(cloud[3]) : 0u;
    const int base = cloud[4];
    float best[SP_SLOTS];
    int row[SP_SLOTS];
    for (uint s = 0; s < SP_SLOTS; ++s) {
        best[s] = INFINITY;
        row[s] = sp_absent;
    }
    float worst = INFINITY;
    uint filled = 0;
    for (uint at = begin; at < end; at += 32) {
        const uint mine = at + lane;
        const bool real = mine < end;
        const float distance =
            real ? sp_distance(queries + ulong(query) * dim, points + ulong(mine) * dim, dim) : INFINITY;
        bool waits = real && (distance < worst || filled < k);
        while (simd_any(waits)) {
            const uint from = simd_min(waits ? lane : 32u);
            const float d = simd_shuffle(distance, ushort(from));
            if (lane == from) waits = false;
            if (!(d < worst || filled < k)) continue;  // the same for all lanes
            uint place = 0;
            for (uint s = 0; s < SP_SLOTS; ++s) place += simd_sum(row[s] >= 0 && best[s] <= d ? 1u : 0u);
            for (uint back = 0; back < SP_SLOTS; ++back) {
                const uint s = SP_SLOTS - 1 - back;
                const uint rank = s * 32 + lane;
                float up_best = simd_shuffle(best[s], ushort(lane == 0 ? 0u : lane - 1));
                int up_row = simd_shuffle(row[s], ushort(lane == 0 ? 0u : lane - 1));
                if (s > 0) {
                    const float carried = simd_shuffle(best[s - 1], ushort(31));
                    const int carried_row = simd_shuffle(row[s - 1], ushort(31));
                    up_best = lane == 0 ? carried : up_best;
                    up_row = lane == 0 ? carried_row : up_row;
                }
                if (rank > place) {
                    best[s] = up_best;
                    row[s] = up_row;
                } else if (rank == place) {
                    best[s] = d;
                    row[s] = int(at + from);
                }
            }
            filled = min(filled + 1, k);
            for (uint s = 0; s < SP_SLOTS; ++s) {
                const float candidate = simd_shuffle(best[s], ushort((k - 1) % 32));
                worst = s == (k - 1) / 32 ? candidate : worst;
            }
        }
    }
    for (uint s = 0; s < SP_SLOTS; ++s) {
        const uint rank = s * 32 + lane;
        if (rank >= k) continue;
        const ulong out = ulong(query) * k + rank;
        const bool found = rank < filled;
        distances[out] = !found ? INFINITY : SP_METRIC == 1 ? sqrt(best[s]) : best[s];
        indices[out] = found ? long(row[s] - base) : long(sp_absent);
    }
}
