// The spatial index of up to three axes: points in the order of a Z curve, boxes around every 32 of them in a row, and
// boxes around every 32 boxes. Each cloud begins at a multiple of 1,024 places; places without a point have row -1.
#pragma clang fp contract(off)

#define SP_CLOUD 5  // columns of the table: query begin and end, reference begin and end, base

// Integers in the order of finite floats.
inline int sp_ordered(float v) {
    const int bits = as_type<int>(v);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}
inline float sp_unordered(int v) { return as_type<float>(v < 0 ? v ^ 0x7fffffff : v); }

// The last cloud whose entries begin at or before `entry`.
inline uint sp_cloud_at(device const int* begins, uint clouds, uint entry) {
    uint low = 0, high = clouds;
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (begins[middle] <= int(entry))
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Lowest and highest coordinate along each axis, as ordered integers. Whole simdgroups.
kernel void sp_index_bounds(device const float* points [[buffer(0)]],  // [n, dim]
                            device atomic_int* lows [[buffer(1)]],     // [dim], INT_MAX before
                            device atomic_int* highs [[buffer(2)]],    // [dim], INT_MIN before
                            constant uint& n [[buffer(3)]],
                            constant uint& dim [[buffer(4)]],
                            uint i [[thread_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
    for (uint axis = 0; axis < dim; ++axis) {
        const int at = sp_ordered(points[ulong(i < n ? i : n - 1) * dim + axis]);
        const int low = simd_min(at), high = simd_max(at);
        if (lane != 0) continue;
        atomic_fetch_min_explicit(&lows[axis], low, memory_order_relaxed);
        atomic_fetch_max_explicit(&highs[axis], high, memory_order_relaxed);
    }
}

// keys[e] = cloud, then the place of the entry's point on the curve.
kernel void sp_index_keys(device const float* points [[buffer(0)]],
                          device const int* table [[buffer(1)]],   // [clouds, SP_CLOUD]
                          device const int* begins [[buffer(2)]],  // [clouds + 1] first entry of a cloud
                          device const int* lows [[buffer(3)]],
                          device const int* highs [[buffer(4)]],
                          device uint* keys [[buffer(5)]],  // [entries]
                          constant uint& entries [[buffer(6)]],
                          constant uint& clouds [[buffer(7)]],
                          constant uint& dim [[buffer(8)]],
                          constant uint& bits [[buffer(9)]],  // of a coordinate
                          uint e [[thread_position_in_grid]]) {
    if (e >= entries) return;
    const uint cloud = sp_cloud_at(begins, clouds, e);
    const uint row = uint(table[cloud * SP_CLOUD + 2]) + e - uint(begins[cloud]);
    const float cells = float(1u << bits);
    uint key = 0;
    for (uint axis = 0; axis < dim; ++axis) {
        const float low = sp_unordered(lows[axis]), reach = sp_unordered(highs[axis]) - low;
        const float at = (points[ulong(row) * dim + axis] - low) / reach * cells;
        const uint cell = at > 0.0f ? uint(min(at, cells - 1.0f)) : 0u;  // also where nothing is a number
        for (uint b = 0; b < bits; ++b) key |= (cell >> b & 1u) << (b * dim + axis);
    }
    keys[e] = cloud << (bits * dim) | key;
}

// Points and rows to their places.
kernel void sp_index_fill(device const float* points [[buffer(0)]],
                          device const int* table [[buffer(1)]],
                          device const int* begins [[buffer(2)]],
                          device const int* starts [[buffer(3)]],  // [clouds + 1] first place of a cloud
                          device const int* order [[buffer(4)]],   // [entries] entry, by key
                          device int* rows [[buffer(5)]],          // [places], -1 before
                          device float* sorted [[buffer(6)]],      // [places, dim]
                          constant uint& entries [[buffer(7)]],
                          constant uint& clouds [[buffer(8)]],
                          constant uint& dim [[buffer(9)]],
                          uint i [[thread_position_in_grid]]) {
    if (i >= entries) return;
    const uint cloud = sp_cloud_at(begins, clouds, i);  // keys begin with the cloud: entries stay in its range
    const uint at = uint(starts[cloud]) + i - uint(begins[cloud]);
    const int row = table[cloud * SP_CLOUD + 2] + order[i] - begins[cloud];
    rows[at] = row;
    for (uint axis = 0; axis < dim; ++axis) sorted[ulong(at) * dim + axis] = points[ulong(uint(row)) * dim + axis];
}

// One simdgroup a box, one thread a place.
kernel void sp_index_boxes(device const int* rows [[buffer(0)]],
                           device const float* sorted [[buffer(1)]],
                           device float* boxes [[buffer(2)]],  // [places / 32, 2, dim] low, high; empty: INF, -INF
                           constant uint& places [[buffer(3)]],
                           constant uint& dim [[buffer(4)]],
                           uint i [[thread_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
    const bool real = i < places && rows[i] >= 0;
    for (uint axis = 0; axis < dim; ++axis) {
        const float at = real ? sorted[ulong(i) * dim + axis] : 0.0f;
        const float low = simd_min(real ? at : INFINITY), high = simd_max(real ? at : -INFINITY);
        if (lane != 0 || i >= places) continue;
        boxes[ulong(i / 32) * 2 * dim + axis] = low;
        boxes[ulong(i / 32) * 2 * dim + dim + axis] = high;
    }
}

// One simdgroup an outer box, one thread a box.
kernel void sp_index_outer(device const float* boxes [[buffer(0)]],
                           device float* outer [[buffer(1)]],  // [boxes / 32, 2, dim]
                           constant uint& count [[buffer(2)]],
                           constant uint& dim [[buffer(3)]],
                           uint i [[thread_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
    const ulong from = ulong(min(i, count - 1)) * 2 * dim;
    for (uint axis = 0; axis < dim; ++axis) {
        const float low = simd_min(boxes[from + axis]), high = simd_max(boxes[from + dim + axis]);
        if (lane != 0 || i >= count) continue;
        outer[ulong(i / 32) * 2 * dim + axis] = low;
        outer[ulong(i / 32) * 2 * dim + dim + axis] = high;
    }
}
