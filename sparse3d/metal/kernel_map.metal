// Kernel maps by look-up in the coordinate table. Taps fill a neighbour table [K, M] (tap-major, so that compacting it
// in storage order gives pairs grouped by tap with ascending dst); scan.metal compacts it.
// Geometry comes as lists of long, one entry an axis.

inline bool sp_in_range(long v) { return v >= -2147483648l && v <= 2147483647l; }

// Input position p = q * stride - padding + t * dilation; false if it leaves int32.
inline bool sp_input_of(SpCoord q,
                        SpCoord tap,
                        constant long* stride,
                        constant long* padding,
                        constant long* dilation,
                        thread SpCoord& p) {
    p.v[0] = q.v[0];
    bool legal = true;
    for (uint d = 0; d < SP_AXES; ++d) {
        const long at = long(q.v[d + 1]) * stride[d] - padding[d] + long(tap.v[d + 1]) * dilation[d];
        legal = legal && sp_in_range(at);
        p.v[d + 1] = int(at);
    }
    return legal;
}

// Outputs are the inputs. One thread a row and a tap of the first half finds the pair and its mirror: p = q + step is
// also the statement that q is the neighbour of p through the mirrored tap. The centre row of `table_out` must hold
// each row's owner. A row that repeats another is nobody's neighbour and looks its own mirrored taps up.
kernel void sp_map_submanifold(device const int* coords [[buffer(0)]],
                               device const int* table [[buffer(1)]],
                               device int* neighbours [[buffer(2)]],  // [K, n], -1 but for the centre
                               constant uint& n [[buffer(3)]],
                               constant uint& mask [[buffer(4)]],
                               constant uint& taps [[buffer(5)]],  // K, odd
                               constant long* kernel_size [[buffer(6)]],
                               constant long* dilation [[buffer(7)]],
                               uint2 at [[thread_position_in_grid]]) {  // row, tap < K / 2
    if (at.x >= n || at.y >= taps / 2) return;
    const SpCoord q = sp_load(coords, at.x), tap = sp_tap(at.y, kernel_size);
    const uint mirror = taps - 1 - at.y;
    const bool owner = neighbours[ulong(taps / 2) * n + at.x] == int(at.x);
    SpCoord p = q, r = q;
    bool legal = true, mirror_legal = true;
    for (uint d = 0; d < SP_AXES; ++d) {
        const long step = (long(tap.v[d + 1]) - kernel_size[d] / 2) * dilation[d];
        const long ahead = long(q.v[d + 1]) + step, behind = long(q.v[d + 1]) - step;
        legal = legal && sp_in_range(ahead);
        mirror_legal = mirror_legal && sp_in_range(behind);
        p.v[d + 1] = int(ahead);
        r.v[d + 1] = int(behind);
    }
    const int found = legal ? sp_find(coords, table, mask, p) : sp_absent;
    if (found >= 0) {
        neighbours[ulong(at.y) * n + at.x] = found;
        if (owner) neighbours[ulong(mirror) * n + uint(found)] = int(at.x);
    }
    if (!owner && mirror_legal) neighbours[ulong(mirror) * n + at.x] = sp_find(coords, table, mask, r);
}

// The same as a table [n, K], a thread an entry; rows of a batch below 0 are no sites and meet nobody.
kernel void sp_map_rows(device const int* coords [[buffer(0)]],
                        device const int* table [[buffer(1)]],
                        device int* neighbours [[buffer(2)]],  // [n, K]
                        constant uint& entries [[buffer(3)]],  // n * K
                        constant uint& mask [[buffer(4)]],
                        constant uint& taps [[buffer(5)]],
                        constant long* kernel_size [[buffer(6)]],
                        constant long* dilation [[buffer(7)]],
                        uint i [[thread_position_in_grid]]) {
    if (i >= entries) return;
    SpCoord p = sp_load(coords, i / taps);
    const SpCoord tap = sp_tap(i % taps, kernel_size);
    bool legal = p.v[0] >= 0;
    for (uint d = 0; d < SP_AXES; ++d) {
        const long at = long(p.v[d + 1]) + (long(tap.v[d + 1]) - kernel_size[d] / 2) * dilation[d];
        legal = legal && sp_in_range(at);
        p.v[d + 1] = int(at);
    }
    neighbours[i] = legal ? sp_find(coords, table, mask, p) : sp_absent;
}

kernel void sp_map_given(device const int* coords [[buffer(0)]],
                         device const int* table [[buffer(1)]],
                         device const int* out_coords [[buffer(2)]],  // [m, SP_COLS]
                         device int* neighbours [[buffer(3)]],        // [K, m]
                         constant uint& m [[buffer(4)]],
                         constant uint& mask [[buffer(5)]],
                         constant uint& taps [[buffer(6)]],
                         constant long* kernel_size [[buffer(7)]],
                         constant long* stride [[buffer(8)]],
                         constant long* padding [[buffer(9)]],
                         constant long* dilation [[buffer(10)]],
                         uint2 at [[thread_position_in_grid]]) {  // row, tap
    if (at.x >= m || at.y >= taps) return;
    SpCoord p;
    const bool legal = sp_input_of(sp_load(out_coords, at.x), sp_tap(at.y, kernel_size), stride, padding, dilation, p);
    neighbours[ulong(at.y) * m + at.x] = legal ? sp_find(coords, table, mask, p) : sp_absent;
}

kernel void sp_floor(device const int* coords [[buffer(0)]],
                     device int* cells [[buffer(1)]],  // [n, SP_COLS] floor(p / stride)
                     constant uint& n [[buffer(2)]],
                     constant long* stride [[buffer(3)]],
                     uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    cells[ulong(i) * SP_COLS] = coords[ulong(i) * SP_COLS];
    for (uint d = 0; d < SP_AXES; ++d)
        cells[ulong(i) * SP_COLS + d + 1] = sp_floor_div(coords[ulong(i) * SP_COLS + d + 1], int(stride[d]));
}

// ---- footprint: outputs are created ----
// Candidate c = row * K + tap is the output that input `row` reaches through `tap`. A table of candidates finds equal
// ones; it holds the lowest, so the lowest owns the output and candidate order is the order of first occurrence.

// The output of a candidate; false if there is none. Transposed: q = p * stride - padding + t * dilation.
inline bool sp_candidate(device const int* coords,
                         uint candidate,
                         uint taps,
                         constant long* kernel_size,
                         constant long* stride,
                         constant long* padding,
                         constant long* dilation,
                         constant long* out_shape,
                         uint grid,
                         uint transposed,
                         thread SpCoord& q) {
    const SpCoord p = sp_load(coords, candidate / taps), tap = sp_tap(candidate % taps, kernel_size);
    bool legal = true;
    q.v[0] = p.v[0];
    for (uint d = 0; d < SP_AXES; ++d) {
        const long spread = long(tap.v[d + 1]) * dilation[d];
        long at;
        if (transposed) {
            at = long(p.v[d + 1]) * stride[d] - padding[d] + spread;
        } else {
            const long reach = long(p.v[d + 1]) + padding[d] - spread;
            at = reach / stride[d];
            legal = legal && at * stride[d] == reach;
        }
        legal = legal && sp_in_range(at) && (!grid || (at >= 0 && at < out_shape[d]));
        q.v[d + 1] = int(at);
    }
    return legal;
}

kernel void sp_footprint_insert(device const int* coords [[buffer(0)]],
                                device atomic_int* table [[buffer(1)]],  // [mask + 1], -1 before
                                constant uint& candidates [[buffer(2)]],
                                constant uint& mask [[buffer(3)]],
                                constant uint& taps [[buffer(4)]],
                                constant long* kernel_size [[buffer(5)]],
                                constant long* stride [[buffer(6)]],
                                constant long* padding [[buffer(7)]],
                                constant long* dilation [[buffer(8)]],
                                constant long* out_shape [[buffer(9)]],
                                constant uint& grid [[buffer(10)]],
                                constant uint& transposed [[buffer(11)]],
                                uint i [[thread_position_in_grid]]) {
    SpCoord key, other;
    if (i >= candidates ||
        !sp_candidate(coords, i, taps, kernel_size, stride, padding, dilation, out_shape, grid, transposed, key))
        return;
    uint slot = sp_hash(key) & mask;
    for (uint probes = 0; probes <= mask;) {
        int owner = atomic_load_explicit(&table[slot], memory_order_relaxed);
        if (owner == sp_absent) {
            int expected = sp_absent;
            if (atomic_compare_exchange_weak_explicit(&table[slot], &expected, int(i), memory_order_relaxed,
                                                      memory_order_relaxed))
                return;
            if (expected == sp_absent) continue;
            owner = expected;
        }
        sp_candidate(coords, uint(owner), taps, kernel_size, stride, padding, dilation, out_shape, grid, transposed,
                     other);
        if (sp_same(other, key)) {
            atomic_fetch_min_explicit(&table[slot], int(i), memory_order_relaxed);
            return;
        }
        slot = (slot + 1) & mask;
        ++probes;
    }
}

// owner[c] = the candidate that owns c's output, -1 if c has none.
kernel void sp_footprint_owner(device const int* coords [[buffer(0)]],
                               device const int* table [[buffer(1)]],
                               device int* owner [[buffer(2)]],  // [candidates]
                               constant uint& candidates [[buffer(3)]],
                               constant uint& mask [[buffer(4)]],
                               constant uint& taps [[buffer(5)]],
                               constant long* kernel_size [[buffer(6)]],
                               constant long* stride [[buffer(7)]],
                               constant long* padding [[buffer(8)]],
                               constant long* dilation [[buffer(9)]],
                               constant long* out_shape [[buffer(10)]],
                               constant uint& grid [[buffer(11)]],
                               constant uint& transposed [[buffer(12)]],
                               uint i [[thread_position_in_grid]]) {
    if (i >= candidates) return;
    SpCoord key, other;
    int found = sp_absent;
    if (sp_candidate(coords, i, taps, kernel_size, stride, padding, dilation, out_shape, grid, transposed, key)) {
        uint slot = sp_hash(key) & mask;
        for (uint probes = 0; probes <= mask; ++probes) {
            const int c = table[slot];
            if (c == sp_absent) break;
            sp_candidate(coords, uint(c), taps, kernel_size, stride, padding, dilation, out_shape, grid, transposed,
                         other);
            if (sp_same(other, key)) {
                found = c;
                break;
            }
            slot = (slot + 1) & mask;
        }
    }
    owner[i] = found;
}

// out_coords[i] = the output of candidate first[i].
kernel void sp_footprint_rows(device const int* coords [[buffer(0)]],
                              device const int* first [[buffer(1)]],  // [m]
                              device int* out_coords [[buffer(2)]],   // [m, SP_COLS]
                              constant uint& m [[buffer(3)]],
                              constant uint& taps [[buffer(4)]],
                              constant long* kernel_size [[buffer(5)]],
                              constant long* stride [[buffer(6)]],
                              constant long* padding [[buffer(7)]],
                              constant long* dilation [[buffer(8)]],
                              constant uint& transposed [[buffer(9)]],
                              uint i [[thread_position_in_grid]]) {
    if (i >= m) return;
    SpCoord q;
    sp_candidate(coords, uint(first[i]), taps, kernel_size, stride, padding, dilation, stride, 0u, transposed, q);
    for (uint d = 0; d < SP_COLS; ++d) out_coords[ulong(i) * SP_COLS + d] = q.v[d];
}

// Every candidate enters its input row in the neighbour table of its output. Rows that repeat each other meet in one
// entry: the lowest stays, and `repeats` counts the others.
kernel void sp_footprint_pairs(device const int* owner [[buffer(0)]],
                               device const int* place [[buffer(1)]],         // [candidates], at owners: output row
                               device atomic_uint* neighbours [[buffer(2)]],  // [K, m], ~0 before
                               device atomic_uint* repeats [[buffer(3)]],     // [1]
                               constant uint& candidates [[buffer(4)]],
                               constant uint& m [[buffer(5)]],
                               constant uint& taps [[buffer(6)]],
                               uint i [[thread_position_in_grid]]) {
    if (i >= candidates || owner[i] < 0) return;
    const ulong entry = ulong(i % taps) * m + uint(place[owner[i]]);
    const uint before = atomic_fetch_min_explicit(&neighbours[entry], i / taps, memory_order_relaxed);
    if (before != 0xffffffffu) atomic_fetch_add_explicit(repeats, 1u, memory_order_relaxed);
}

// For rows that repeat: sort keys of all candidates, output row or m (no output), and tap.
kernel void sp_footprint_keys(device const int* owner [[buffer(0)]],
                              device const int* place [[buffer(1)]],
                              device uint* keys [[buffer(2)]],  // [candidates]
                              constant uint& candidates [[buffer(3)]],
                              constant uint& m [[buffer(4)]],
                              uint i [[thread_position_in_grid]]) {
    if (i < candidates) keys[i] = owner[i] < 0 ? m : uint(place[owner[i]]);
}

// keys[i] = tap of candidate order[i].
kernel void sp_footprint_taps(device const int* order [[buffer(0)]],
                              device uint* keys [[buffer(1)]],  // [pairs]
                              constant uint& pairs [[buffer(2)]],
                              constant uint& taps [[buffer(3)]],
                              uint i [[thread_position_in_grid]]) {
    if (i < pairs) keys[i] = uint(order[i]) % taps;
}

// Pair i is candidate order[moved[i]].
kernel void sp_footprint_emit(device const int* owner [[buffer(0)]],
                              device const int* place [[buffer(1)]],
                              device const int* order [[buffer(2)]],
                              device const int* moved [[buffer(3)]],
                              device int* src [[buffer(4)]],  // [pairs]
                              device int* dst [[buffer(5)]],
                              constant uint& pairs [[buffer(6)]],
                              constant uint& taps [[buffer(7)]],
                              uint i [[thread_position_in_grid]]) {
    if (i >= pairs) return;
    const int candidate = order[moved[i]];
    src[i] = int(uint(candidate) / taps);
    dst[i] = place[owner[candidate]];
}

// place[first[i]] = number[i]: outputs have been renumbered.
kernel void sp_renumber(device const int* first [[buffer(0)]],
                        device const int* number [[buffer(1)]],
                        device int* place [[buffer(2)]],
                        constant uint& m [[buffer(3)]],
                        uint i [[thread_position_in_grid]]) {
    if (i < m) place[first[i]] = number[i];
}
