// Ball query by brute force: a simdgroup a query, 32 points at a time in ascending row, until k are found. Hits are
// written where the hits before them say. No threadgroup memory, no barriers.
#pragma clang fp contract(off)

#ifndef SP_SLOTS  // (k + 31) / 32, with an index
#define SP_SLOTS 1
#endif
#ifndef SP_FIRST_ROWS  // looked at in order before the index is asked
#define SP_FIRST_ROWS 2048
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

// ---- with an index ----
// Hits come in any order. The k of lowest row lie sorted in registers, SP_SLOTS a lane, as in knn.metal.

struct SpLowest {
    float distance[SP_SLOTS];
    int row[SP_SLOTS];
    int last;  // row of rank k - 1
    uint filled;
};

inline void sp_insert(thread SpLowest& s, float d, int row, uint k, uint lane) {
    uint place = 0;
    for (uint j = 0; j < SP_SLOTS; ++j) place += simd_sum(s.row[j] >= 0 && s.row[j] < row ? 1u : 0u);
    for (uint back = 0; back < SP_SLOTS; ++back) {
        const uint j = SP_SLOTS - 1 - back;
        const uint rank = j * 32 + lane;
        float up_distance = simd_shuffle(s.distance[j], ushort(lane == 0 ? 0u : lane - 1));
        int up_row = simd_shuffle(s.row[j], ushort(lane == 0 ? 0u : lane - 1));
        if (j > 0) {
            const float carried = simd_shuffle(s.distance[j - 1], ushort(31));
            const int carried_row = simd_shuffle(s.row[j - 1], ushort(31));
            up_distance = lane == 0 ? carried : up_distance;
            up_row = lane == 0 ? carried_row : up_row;
        }
        if (rank > place) {
            s.distance[j] = up_distance;
            s.row[j] = up_row;
        } else if (rank == place) {
            s.distance[j] = d;
            s.row[j] = row;
        }
    }
    s.filled = min(s.filled + 1, k);
    for (uint j = 0; j < SP_SLOTS; ++j) {
        const int row_last = simd_shuffle(s.row[j], ushort((k - 1) % 32));
        if (j == (k - 1) / 32) s.last = row_last;
    }
}

// No squared distance to a point in the box is smaller: roundings keep the order of differences, squares and sums.
inline float sp_bound(device const float* query, device const float* box, uint dim) {
    float sum = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float difference = max(max(box[axis] - query[axis], query[axis] - box[dim + axis]), 0.0f);
        const float term = difference * difference;
        sum = axis == 0 ? term : sum + term;
    }
    return sum;
}

// A lane's hit, if it has one, among the k lowest.
inline void sp_offer(thread SpLowest& s, bool hit, float distance, int mine, uint k, uint lane) {
    bool waits = hit && (s.filled < k || mine < s.last);
    while (simd_any(waits)) {
        const uint from = simd_min(waits ? lane : 32u);
        const float d = simd_shuffle(distance, ushort(from));
        const int row = simd_shuffle(mine, ushort(from));
        sp_insert(s, d, row, k, lane);
        waits = waits && lane != from && (s.filled < k || mine < s.last);
    }
}

kernel void sp_ball_index(device const float* queries [[buffer(0)]],  // [queries, dim]
                          device const float* points [[buffer(1)]],   // [points, dim]
                          device const int* table [[buffer(2)]],      // [clouds, SP_CLOUD]
                          device const int* starts [[buffer(3)]],     // [clouds + 1] places of a cloud
                          device const int* rows [[buffer(4)]],       // [places]
                          device const float* sorted [[buffer(5)]],   // [places, dim]
                          device const float* boxes [[buffer(6)]],    // [places / 32, 2, dim]
                          device const float* outer [[buffer(7)]],    // [places / 1024, 2, dim]
                          device float* distances [[buffer(8)]],      // [queries, k]
                          device long* indices [[buffer(9)]],         // [queries, k]
                          constant uint& clouds [[buffer(10)]],
                          constant uint& dim [[buffer(11)]],
                          constant uint& k [[buffer(12)]],
                          constant float& squared_radius [[buffer(13)]],
                          constant uint& skip_same [[buffer(14)]],
                          constant uint& first_query [[buffer(15)]],
                          constant uint& last_query [[buffer(16)]],
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
    SpLowest s;
    for (uint j = 0; j < SP_SLOTS; ++j) {
        s.distance[j] = 0.0f;
        s.row[j] = sp_absent;
    }
    s.last = sp_absent;
    s.filled = 0;
    // A wide ball is full after a few rows, and what is found in their order stays.
    const uint begin_row = inside ? uint(cloud[2]) : 0u;
    const uint end_row = inside ? min(uint(cloud[3]), begin_row + SP_FIRST_ROWS) : 0u;
    for (uint at = begin_row; at < end_row && s.filled < k; at += 32) {
        const uint mine = at + lane;
        float distance = INFINITY;
        if (mine < end_row) distance = sp_squared(query, points + ulong(mine) * dim, dim);
        const bool same = skip_same != 0 && mine == number;
        sp_offer(s, mine < end_row && distance < squared_radius && !same, distance, int(mine), k, lane);
    }
    const bool full = s.filled == k;
    const uint begin = inside && !full ? uint(starts[which]) / 1024 : 0u;
    const uint end = inside && !full ? uint(starts[which + 1]) / 1024 : 0u;
    for (uint at = begin; at < end; at += 32) {
        const uint mine = at + lane;
        bool near = mine < end && sp_bound(query, outer + ulong(mine) * 2 * dim, dim) < squared_radius;
        while (simd_any(near)) {
            const uint from = simd_min(near ? lane : 32u), box = (at + from) * 32 + lane;
            if (lane == from) near = false;
            bool close = sp_bound(query, boxes + ulong(box) * 2 * dim, dim) < squared_radius;
            while (simd_any(close)) {
                const uint chosen = simd_min(close ? lane : 32u);
                if (lane == chosen) close = false;
                const uint place = ((at + from) * 32 + chosen) * 32 + lane;
                const int row = rows[place];
                float distance = INFINITY;
                if (row >= 0) distance = sp_squared(query, sorted + ulong(place) * dim, dim);
                const bool fresh = row >= int(end_row) && !(skip_same != 0 && row == int(number));
                sp_offer(s, fresh && distance < squared_radius, distance, row, k, lane);
            }
        }
    }
    for (uint j = 0; j < SP_SLOTS; ++j) {
        const uint rank = j * 32 + lane;
        if (rank >= k) continue;
        const ulong out = ulong(number) * k + rank;
        const bool found = rank < s.filled;
        distances[out] = found ? s.distance[j] : 0.0f;
        indices[out] = found ? long(s.row[j] - cloud[4]) : long(sp_absent);
    }
}
