// What a convolution precomputes from a map's pairs: an order of output rows in which like tap masks lie together, and
// for every tile of 64 rows in that order its slots (the taps present) with their pairs.

#define SP_TILE 64
#define SP_EMPTY 0xffffffffu

// Tap of pair i: the last split that is not beyond it.
inline uint sp_tap_of(device const long* splits, uint taps, uint pair) {
    uint low = 0, high = taps;
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (splits[middle] <= long(pair))
            low = middle;
        else
            high = middle;
    }
    return low;
}

// entries[tap, dst] = lowest pair of that tap and output row among those of `layer` or later (a pair's layer is 0 at
// first). Two pairs of a tap meet in one output row only where coordinates repeat.
kernel void sp_plan_enter(device const int* dst [[buffer(0)]],        // [pairs]
                          device const long* splits [[buffer(1)]],    // [taps + 1]
                          device const int* layers [[buffer(2)]],     // [pairs]
                          device atomic_uint* entries [[buffer(3)]],  // [taps, rows], SP_EMPTY before
                          constant uint& pairs [[buffer(4)]],
                          constant uint& taps [[buffer(5)]],
                          constant uint& rows [[buffer(6)]],
                          constant int& layer [[buffer(7)]],
                          uint i [[thread_position_in_grid]]) {
    if (i >= pairs || layers[i] < layer) return;
    const ulong entry = ulong(sp_tap_of(splits, taps, i)) * rows + uint(dst[i]);
    atomic_fetch_min_explicit(&entries[entry], i, memory_order_relaxed);
}

// Pairs of this layer that found their entry taken move to the next; `moved` counts them.
kernel void sp_plan_displace(device const int* dst [[buffer(0)]],
                             device const long* splits [[buffer(1)]],
                             device int* layers [[buffer(2)]],
                             device const uint* entries [[buffer(3)]],
                             device atomic_uint* moved [[buffer(4)]],
                             constant uint& pairs [[buffer(5)]],
                             constant uint& taps [[buffer(6)]],
                             constant uint& rows [[buffer(7)]],
                             constant int& layer [[buffer(8)]],
                             uint i [[thread_position_in_grid]]) {
    if (i >= pairs || layers[i] < layer) return;
    const ulong entry = ulong(sp_tap_of(splits, taps, i)) * rows + uint(dst[i]);
    if (entries[entry] == i) return;
    layers[i] = layer + 1;
    atomic_fetch_add_explicit(moved, 1u, memory_order_relaxed);
}

// keys[row] = block of stored order, then the position of the row's tap mask in a Gray code. bit_of[tap] is the mask
// bit of a tap, -1 for taps that do not take part.
kernel void sp_plan_keys(device const uint* entries [[buffer(0)]],  // [taps, rows]
                         device const int* bit_of [[buffer(1)]],    // [taps]
                         device uint* keys [[buffer(2)]],           // [rows]
                         constant uint& taps [[buffer(3)]],
                         constant uint& rows [[buffer(4)]],
                         constant uint& bits [[buffer(5)]],   // mask bits
                         constant uint& block [[buffer(6)]],  // rows a block
                         uint i [[thread_position_in_grid]]) {
    if (i >= rows) return;
    uint word = 0;
    for (uint t = 0; t < taps; ++t)
        if (bit_of[t] >= 0 && entries[ulong(t) * rows + i] != SP_EMPTY) word |= 1u << uint(bit_of[t]);
    for (uint s = 1; s < 32; s *= 2) word ^= word >> s;
    keys[i] = (i / block) << bits | word;
}

// Pairs of a tile's rows through one tap: lane l looks at rows l and l + 32. Returns which lanes have one.
inline uint2 sp_present(device const uint* entries,
                        int row0,
                        int row1,
                        ulong first,
                        thread uint& pair0,
                        thread uint& pair1) {
    pair0 = row0 >= 0 ? entries[first + uint(row0)] : SP_EMPTY;
    pair1 = row1 >= 0 ? entries[first + uint(row1)] : SP_EMPTY;
    return uint2(uint(ulong(simd_ballot(pair0 != SP_EMPTY))), uint(ulong(simd_ballot(pair1 != SP_EMPTY))));
}

// One simdgroup a tile: how many taps are present, and how many pairs.
kernel void sp_plan_count(device const uint* entries [[buffer(0)]],  // [layers * taps, rows]
                          device const int* order [[buffer(1)]],     // [rows]
                          device uint* slot_counts [[buffer(2)]],    // [tiles + 1]
                          device uint* pair_counts [[buffer(3)]],    // [tiles + 1]
                          constant uint& taps [[buffer(4)]],         // layers * taps
                          constant uint& rows [[buffer(5)]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint tile [[threadgroup_position_in_grid]]) {
    const uint at = tile * SP_TILE + lane;
    const int row0 = at < rows ? order[at] : sp_absent, row1 = at + 32 < rows ? order[at + 32] : sp_absent;
    uint slots = 0, pairs = 0, pair0, pair1;
    for (uint t = 0; t < taps; ++t) {
        const uint2 votes = sp_present(entries, row0, row1, ulong(t) * rows, pair0, pair1);
        const uint n = popcount(votes.x) + popcount(votes.y);
        if (n != 0u) ++slots;
        pairs += n;
    }
    if (lane != 0) return;
    slot_counts[tile] = slots;
    pair_counts[tile] = pairs;
}

// Lists the slots of a tile and the pairs of each slot, by row. A slot is a tap (low 16 bits) with the number of its
// pairs in the first half of the tile (high 16 bits).
kernel void sp_plan_fill(device const uint* entries [[buffer(0)]],
                         device const int* order [[buffer(1)]],
                         device const int* src [[buffer(2)]],           // [pairs]
                         device const uint* starts [[buffer(3)]],       // [tiles + 1] first slot of a tile
                         device const uint* pair_starts [[buffer(4)]],  // [tiles + 1] first pair of a tile
                         device uint* slots [[buffer(5)]],              // [slots]
                         device uint* begins [[buffer(6)]],             // [slots + 1] first pair of a slot
                         device int* sources [[buffer(7)]],             // [pairs] input row
                         device uchar* places [[buffer(8)]],            // [pairs] row in the tile
                         device int* tile_rows [[buffer(9)]],           // [tiles, SP_TILE] output row, -1 = none
                         constant uint& all_taps [[buffer(10)]],        // layers * taps
                         constant uint& taps [[buffer(11)]],
                         constant uint& rows [[buffer(12)]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint tile [[threadgroup_position_in_grid]],
                         uint tiles [[threadgroups_per_grid]]) {
    const uint at = tile * SP_TILE + lane, below = (1u << lane) - 1u;
    const int row0 = at < rows ? order[at] : sp_absent, row1 = at + 32 < rows ? order[at + 32] : sp_absent;
    tile_rows[at] = row0;
    tile_rows[at + 32] = row1;
    uint slot = starts[tile], pair = pair_starts[tile], pair0, pair1;
    for (uint t = 0; t < all_taps; ++t) {
        const uint2 votes = sp_present(entries, row0, row1, ulong(t) * rows, pair0, pair1);
        const uint half_count = popcount(votes.x), count = half_count + popcount(votes.y);
        if (count == 0u) continue;
        if (lane == 0) {
            slots[slot] = t % taps | half_count << 16;
            begins[slot] = pair;
        }
        if (pair0 != SP_EMPTY) {
            const uint p = pair + popcount(votes.x & below);
            sources[p] = src[pair0];
            places[p] = uchar(lane);
        }
        if (pair1 != SP_EMPTY) {
            const uint p = pair + half_count + popcount(votes.y & below);
            sources[p] = src[pair1];
            places[p] = uchar(lane + 32);
        }
        ++slot;
        pair += count;
    }
    if (tile == tiles - 1 && lane == 0) begins[slot] = pair;
}
