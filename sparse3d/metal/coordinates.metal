// The coordinate table: open addressing in 32-bit slots that hold the row that owns the coordinate. Keys are never
// stored; they are read back from the coordinates, which no kernel writes, so 32-bit atomics are enough.

// One thread a row. Ends with the lowest row of each coordinate in its slot, whatever the order of threads.
kernel void sp_table_insert(device const int* coords [[buffer(0)]],  // [n, SP_COLS]
                            device atomic_int* table [[buffer(1)]],  // [mask + 1], -1 before
                            constant uint& n [[buffer(2)]],
                            constant uint& mask [[buffer(3)]],
                            uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    const SpCoord key = sp_load(coords, i);
    uint slot = sp_hash(key) & mask;
    for (uint probes = 0; probes <= mask;) {
        int owner = atomic_load_explicit(&table[slot], memory_order_relaxed);
        if (owner == sp_absent) {
            int expected = sp_absent;
            if (atomic_compare_exchange_weak_explicit(&table[slot], &expected, int(i), memory_order_relaxed,
                                                      memory_order_relaxed))
                return;
            if (expected == sp_absent) continue;  // the weak exchange failed for no reason: the same slot again
            owner = expected;
        }
        if (sp_same(sp_load(coords, uint(owner)), key)) {
            atomic_fetch_min_explicit(&table[slot], int(i), memory_order_relaxed);
            return;
        }
        slot = (slot + 1) & mask;
        ++probes;
    }
}

kernel void sp_lookup(device const int* coords [[buffer(0)]],
                      device const int* table [[buffer(1)]],
                      device const int* queries [[buffer(2)]],  // [q, SP_COLS]
                      device int* rows [[buffer(3)]],           // [q]
                      constant uint& q [[buffer(4)]],
                      constant uint& mask [[buffer(5)]],
                      uint i [[thread_position_in_grid]]) {
    if (i < q) rows[i] = sp_find(coords, table, mask, sp_load(queries, i));
}

// falls becomes 1 if a batch id is below the one before it.
kernel void sp_batch_falls(device const int* coords [[buffer(0)]],
                           device atomic_int* falls [[buffer(1)]],  // [1], 0 before
                           constant uint& n [[buffer(2)]],
                           uint i [[thread_position_in_grid]]) {
    if (i == 0 || i >= n) return;
    if (coords[ulong(i) * SP_COLS] < coords[ulong(i - 1) * SP_COLS])
        atomic_store_explicit(falls, 1, memory_order_relaxed);
}

// range: lowest and highest batch id.
kernel void sp_batch_range(device const int* coords [[buffer(0)]],
                           device atomic_int* range [[buffer(1)]],  // [2], (INT_MAX, INT_MIN) before
                           constant uint& n [[buffer(2)]],
                           uint i [[thread_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
    const int batch = coords[ulong(i < n ? i : n - 1) * SP_COLS];
    const int low = simd_min(batch), high = simd_max(batch);
    if (lane != 0) return;
    atomic_fetch_min_explicit(&range[0], low, memory_order_relaxed);
    atomic_fetch_max_explicit(&range[1], high, memory_order_relaxed);
}

// keys[i] = batch id of row rows[i], from 0.
kernel void sp_batch_keys(device const int* coords [[buffer(0)]],
                          device const int* rows [[buffer(1)]],
                          device uint* keys [[buffer(2)]],
                          constant uint& n [[buffer(3)]],
                          constant int& lowest [[buffer(4)]],
                          uint i [[thread_position_in_grid]]) {
    if (i < n) keys[i] = uint(coords[ulong(rows[i]) * SP_COLS]) - uint(lowest);
}

// first[i] = rows[order[i]]; place[rows[order[i]]] = i.
kernel void sp_place(device const int* rows [[buffer(0)]],
                     device const int* order [[buffer(1)]],
                     device int* first [[buffer(2)]],
                     device int* place [[buffer(3)]],
                     constant uint& n [[buffer(4)]],
                     uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    const int row = rows[order[i]];
    first[i] = row;
    place[row] = int(i);
}

kernel void sp_gather_rows(device const int* coords [[buffer(0)]],  // [*, SP_COLS]
                           device const int* rows [[buffer(1)]],    // [n]
                           device int* out [[buffer(2)]],           // [n, SP_COLS]
                           constant uint& n [[buffer(3)]],
                           uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    for (uint d = 0; d < SP_COLS; ++d) out[ulong(i) * SP_COLS + d] = coords[ulong(rows[i]) * SP_COLS + d];
}

// inverse[i] = place[owner[i]], widened.
kernel void sp_inverse(device const int* owner [[buffer(0)]],
                       device const int* place [[buffer(1)]],
                       device long* inverse [[buffer(2)]],
                       constant uint& n [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
    if (i < n) inverse[i] = long(place[owner[i]]);
}
