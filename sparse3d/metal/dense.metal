// Sparse rows into a dense grid and back. Offsets are 64-bit.

inline ulong sp_cell(device const int* coords, uint row, constant long* shape) {
    ulong cell = ulong(uint(coords[ulong(row) * SP_COLS]));
    for (uint d = 0; d < SP_AXES; ++d)
        cell = cell * ulong(shape[d]) + ulong(uint(coords[ulong(row) * SP_COLS + d + 1]));
    return cell;
}

// owner[cell] = lowest row in it.
kernel void sp_dense_owner(device const int* coords [[buffer(0)]],  // [n, SP_COLS], inside the grid
                           device atomic_int* owner [[buffer(1)]],  // [cells], INT_MAX before
                           constant uint& n [[buffer(2)]],
                           constant long* shape [[buffer(3)]],
                           uint i [[thread_position_in_grid]]) {
    if (i < n) atomic_fetch_min_explicit(&owner[sp_cell(coords, i, shape)], int(i), memory_order_relaxed);
}

kernel void sp_dense_scatter(device const SP_ELEM* feats [[buffer(0)]],  // [n, channels]
                             device const int* coords [[buffer(1)]],
                             device const int* owner [[buffer(2)]],
                             device SP_ELEM* dense [[buffer(3)]],  // [cells, channels], 0 before
                             constant uint& channels [[buffer(4)]],
                             constant uint& n [[buffer(5)]],
                             constant long* shape [[buffer(6)]],
                             uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= n) return;
    const ulong cell = sp_cell(coords, at.y, shape);
    if (owner[cell] == int(at.y)) dense[cell * channels + at.x] = feats[ulong(at.y) * channels + at.x];
}

kernel void sp_dense_gather(device const SP_ELEM* dense [[buffer(0)]],
                            device const int* coords [[buffer(1)]],
                            device SP_ELEM* out [[buffer(2)]],  // [n, channels]
                            constant uint& channels [[buffer(3)]],
                            constant uint& n [[buffer(4)]],
                            constant long* shape [[buffer(5)]],
                            uint2 at [[thread_position_in_grid]]) {
    if (at.x >= channels || at.y >= n) return;
    out[ulong(at.y) * channels + at.x] = dense[sp_cell(coords, at.y, shape) * channels + at.x];
}
