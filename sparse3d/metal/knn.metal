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

// ---- with an index ----

struct SpNearest {
    float best[SP_SLOTS];
    int row[SP_SLOTS];
    float worst;  // of rank k - 1
    int worst_row;
    uint filled;
};

inline bool sp_before(float d, int row, float other, int other_row) {
    return d < other || (d == other && row < other_row);
}

inline bool sp_welcome(thread const SpNearest& s, float d, int row, uint k) {
    return s.filled < k || sp_before(d, row, s.worst, s.worst_row);
}

// Puts a point in its place by (distance, row); the same point in all lanes.
inline void sp_insert(thread SpNearest& s, float d, int row, uint k, uint lane) {
    uint place = 0;
    for (uint j = 0; j < SP_SLOTS; ++j)
        place += simd_sum(s.row[j] >= 0 && sp_before(s.best[j], s.row[j], d, row) ? 1u : 0u);
    for (uint back = 0; back < SP_SLOTS; ++back) {
        const uint j = SP_SLOTS - 1 - back;
        const uint rank = j * 32 + lane;
        float up_best = simd_shuffle(s.best[j], ushort(lane == 0 ? 0u : lane - 1));
        int up_row = simd_shuffle(s.row[j], ushort(lane == 0 ? 0u : lane - 1));
        if (j > 0) {
            const float carried = simd_shuffle(s.best[j - 1], ushort(31));
            const int carried_row = simd_shuffle(s.row[j - 1], ushort(31));
            up_best = lane == 0 ? carried : up_best;
            up_row = lane == 0 ? carried_row : up_row;
        }
        if (rank > place) {
            s.best[j] = up_best;
            s.row[j] = up_row;
        } else if (rank == place) {
            s.best[j] = d;
            s.row[j] = row;
        }
    }
    s.filled = min(s.filled + 1, k);
    for (uint j = 0; j < SP_SLOTS; ++j) {
        const float d_last = simd_shuffle(s.best[j], ushort((k - 1) % 32));
        const int row_last = simd_shuffle(s.row[j], ushort((k - 1) % 32));
        if (j != (k - 1) / 32) continue;
        s.worst = d_last;
        s.worst_row = row_last;
    }
}

// No distance to a point in the box is smaller: roundings keep the order of differences, terms and sums.
inline float sp_bound(device const float* query, device const float* box, uint dim) {
    float sum = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float difference = max(max(box[axis] - query[axis], query[axis] - box[dim + axis]), 0.0f);
        const float term = SP_METRIC == 2 ? difference : difference * difference;
        sum = axis == 0 ? term : sum + term;
    }
    return sum;
}

// The 32 places of a box.
inline void sp_visit_box(thread SpNearest& s,
                         device const float* query,
                         device const int* rows,
                         device const float* sorted,
                         uint box,
                         uint dim,
                         uint k,
                         uint lane) {
    const uint at = box * 32 + lane;
    const int mine = rows[at];
    const float distance = mine >= 0 ? sp_distance(query, sorted + ulong(at) * dim, dim) : INFINITY;
    bool waits = mine >= 0 && sp_welcome(s, distance, mine, k);
    while (simd_any(waits)) {
        const uint from = simd_min(waits ? lane : 32u);
        const float d = simd_shuffle(distance, ushort(from));
        const int row = simd_shuffle(mine, ushort(from));
        sp_insert(s, d, row, k, lane);
        waits = waits && lane != from && sp_welcome(s, distance, mine, k);
    }
}

// The 32 boxes of an outer box, nearest first.
inline void sp_visit_outer(thread SpNearest& s,
                           device const float* query,
                           device const int* rows,
                           device const float* sorted,
                           device const float* boxes,
                           uint which,
                           uint dim,
                           uint k,
                           uint lane) {
    const float bound = sp_bound(query, boxes + ulong(which * 32 + lane) * 2 * dim, dim);
    bool waits = true;
    while (simd_any(waits)) {
        const float nearest = simd_min(waits ? bound : INFINITY);
        if (s.filled == k && nearest > s.worst) break;
        const uint from = simd_min(waits && bound == nearest ? lane : 32u);
        if (lane == from) waits = false;
        sp_visit_box(s, query, rows, sorted, which * 32 + from, dim, k, lane);
    }
}

kernel void sp_knn_index(device const float* queries [[buffer(0)]],  // [queries, dim]
                         device const int* table [[buffer(1)]],      // [clouds, SP_CLOUD]
                         device const int* starts [[buffer(2)]],     // [clouds + 1] places of a cloud
                         device const int* rows [[buffer(3)]],       // [places]
                         device const float* sorted [[buffer(4)]],   // [places, dim]
                         device const float* boxes [[buffer(5)]],    // [places / 32, 2, dim]
                         device const float* outer [[buffer(6)]],    // [places / 1024, 2, dim]
                         device float* distances [[buffer(7)]],      // [queries, k]
                         device long* indices [[buffer(8)]],         // [queries, k]
                         constant uint& clouds [[buffer(9)]],
                         constant uint& dim [[buffer(10)]],
                         constant uint& k [[buffer(11)]],
                         constant uint& first_query [[buffer(12)]],
                         constant uint& last_query [[buffer(13)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
    const uint number = first_query + group * simdgroups + sg;
    if (number >= last_query) return;  // the whole simdgroup
    const uint which = sp_cloud_of(table, clouds, number);
    device const int* cloud = table + which * SP_CLOUD;
    device const float* query = queries + ulong(number) * dim;
    const bool inside = int(number) >= cloud[0] && int(number) < cloud[1];
    const uint begin = inside ? uint(starts[which]) / 1024 : 0u;
    const uint end = inside ? uint(starts[which + 1]) / 1024 : 0u;
    SpNearest s;
    for (uint j = 0; j < SP_SLOTS; ++j) {
        s.best[j] = INFINITY;
        s.row[j] = sp_absent;
    }
    s.worst = INFINITY;
    s.worst_row = sp_absent;
    s.filled = 0;
    float near = INFINITY;
    uint first = begin;
    for (uint at = begin; at < end; at += 32) {
        const float bound = at + lane < end ? sp_bound(query, outer + ulong(at + lane) * 2 * dim, dim) : INFINITY;
        const float nearest = simd_min(bound);
        if (nearest >= near) continue;
        near = nearest;
        first = at + simd_min(bound == nearest ? lane : 32u);
    }
    if (begin < end) sp_visit_outer(s, query, rows, sorted, boxes, first, dim, k, lane);
    for (uint at = begin; at < end; at += 32) {
        const uint mine = at + lane;
        const float bound = mine < end ? sp_bound(query, outer + ulong(mine) * 2 * dim, dim) : INFINITY;
        bool waits = mine < end && mine != first && (s.filled < k || bound <= s.worst);
        while (simd_any(waits)) {
            const uint from = simd_min(waits ? lane : 32u);
            sp_visit_outer(s, query, rows, sorted, boxes, at + from, dim, k, lane);
            waits = waits && lane != from && (s.filled < k || bound <= s.worst);
        }
    }
    for (uint j = 0; j < SP_SLOTS; ++j) {
        const uint rank = j * 32 + lane;
        if (rank >= k) continue;
        const ulong out = ulong(number) * k + rank;
        const bool found = rank < s.filled;
        distances[out] = !found ? INFINITY : SP_METRIC == 1 ? sqrt(s.best[j]) : s.best[j];
        indices[out] = found ? long(s.row[j] - cloud[4]) : long(sp_absent);
    }
}
