// Points to voxels and back: the 2^D corners of a point's cell with their trilinear weights, and weighted sums of rows.

// One thread a point and a corner; corner bits run with the last axis fastest. SP_ELEM is the type of the points.
kernel void sp_trilinear(device const int* coords [[buffer(0)]],  // [n, SP_COLS]
                         device const int* table [[buffer(1)]],
                         device const SP_ELEM* points [[buffer(2)]],  // [q, SP_COLS] batch, position in voxels
                         device int* rows [[buffer(3)]],              // [q, 2^D]
                         device SP_ELEM* weights [[buffer(4)]],       // [q, 2^D]
                         constant uint& q [[buffer(5)]],
                         constant uint& mask [[buffer(6)]],
                         uint2 at [[thread_position_in_grid]]) {  // corner, point
    if (at.x >= (1u << SP_AXES) || at.y >= q) return;
    SpCoord key;
    key.v[0] = int(float(points[ulong(at.y) * SP_COLS]));
    float weight = 1.0f;
    bool legal = true;
    for (uint d = 0; d < SP_AXES; ++d) {
        const float x = float(points[ulong(at.y) * SP_COLS + d + 1]), base = floor(x);
        const uint upper = at.x >> (SP_AXES - 1 - d) & 1u;
        const bool inside = base >= -2147483648.0f && base < 2147483520.0f;
        legal = legal && inside;
        key.v[d + 1] = (inside ? int(base) : 0) + int(upper);
        weight *= upper ? x - base : 1.0f - (x - base);
    }
    const ulong to = ulong(at.y) * (1u << SP_AXES) + at.x;
    rows[to] = legal ? sp_find(coords, table, mask, key) : sp_absent;
    weights[to] = SP_ELEM(weight);
}

kernel void sp_interpolate(device const SP_ELEM* feats [[buffer(0)]],  // [n, channels]
                           device const int* rows [[buffer(1)]],       // [q, corners], -1 counts 0
                           device const float* weights [[buffer(2)]],  // [q, corners]
                           device SP_ELEM* out [[buffer(3)]],          // [q, channels]
                           constant uint& channels [[buffer(4)]],
                           constant uint& q [[buffer(5)]],
                           constant uint& corners [[buffer(6)]],
                           uint2 at [[thread_position_in_grid]]) {  // channel, point
    if (at.x >= channels || at.y >= q) return;
    float sum = 0.0f;
    for (uint j = 0; j < corners; ++j) {
        const int row = rows[ulong(at.y) * corners + j];
        if (row >= 0)
            sum = fma(weights[ulong(at.y) * corners + j], float(feats[ulong(uint(row)) * channels + at.x]), sum);
    }
    out[ulong(at.y) * channels + at.x] = SP_ELEM(sum);
}

// ids[e] = row of entry e, or `num` where it is absent.
kernel void sp_interpolate_ids(device const int* rows [[buffer(0)]],
                               device int* ids [[buffer(1)]],
                               constant uint& entries [[buffer(2)]],
                               constant int& num [[buffer(3)]],
                               uint e [[thread_position_in_grid]]) {
    if (e < entries) ids[e] = rows[e] < 0 ? num : rows[e];
}
