// Ball query by brute force: a simdgroup a query, 32 points at a time in ascending row, until k are found. Hits are
// written where the hits before them say. No threadgroup memory, no barriers.
#pragma clang fp contract(off)

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

inline float sp_squared(device const float* query, device const float* point, uint dim) {
    float sum = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float difference = query[axis] - point[axis];
        const float term = difference * difference;
        sum = axis == 0 ? term : sum + term;
    }
    return sum;
}

kernel void sp_ball(device const float* queries [[buffer(0)]],  // [queries, dim]
                    device const float* points [[buffer(1)]],   // [points, dim]
                    device const int* table [[buffer(2)]],      // [clouds, SP_CLOUD]
                    device float* distances [[buffer(3)]],      // [queries, k]
                    device long* indices [[buffer(4)]],         // [queries, k]
                    constant uint& clouds [[buffer(5)]],
                    constant uint& dim [[buffer(6)]],
                    constant uint& k [[buffer(7)]],
                    constant float& squared_radius [[buffer(8)]],
                    constant uint& skip_same [[buffer(9)]],
                    constant uint& first_query [[buffer(10)]],
                    constant uint& last_query [[buffer(11)]],
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
    uint found = 0;
    for (uint at = begin; at < end && found < k; at += 32) {
        const uint mine = at + lane;
        float distance = INFINITY;
        if (mine < end) distance = sp_squared(queries + ulong(query) * dim, points + ulong(mine) * dim, dim);
        const bool hit = mine < end && distance < squared_radius && !(skip_same != 0 && mine == query);
        const uint place = found + simd_prefix_exclusive_sum(hit ? 1u : 0u);
        if (hit && place < k) {
            distances[ulong(query) * k + place] = distance;
            indices[ulong(query) * k + place] = long(int(mine) - base);
        }
        found += simd_sum(hit ? 1u : 0u);
    }
    for (uint place = min(found, k) + lane; place < k; place += 32) {
        distances[ulong(query) * k + place] = 0.0f;
        indices[ulong(query) * k + place] = long(sp_absent);
    }
}
