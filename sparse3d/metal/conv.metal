// Sparse convolution on tiles of output rows: forward, and with SP_BACKWARD the gradient to the input; a variant for
// few channels; a weight-stationary variant; the weight gradient. Accumulators are float.
//
// sp_conv: one threadgroup makes SP_BM rows of a plan's tile x SP_BN channels. It walks the tile's slots, the taps
// present. A slot's input rows are gathered without gaps, so only the last fragment of 8 rows is padded; their product
// is made in registers and then added to the rows it belongs to, in threadgroup memory. The next slot's pair list is
// fetched between barriers that are there anyway.
//
// Layers are described by a list: channels in and out of one group, taps, groups, flags, first tile.

#ifndef SP_VEC  // elements a load; divides both channel counts of a group
#define SP_VEC 1
#endif
#ifndef SP_BACKWARD  // 1: weights are read transposed
#define SP_BACKWARD 0
#endif
#ifndef SP_BM
#define SP_BM 64
#endif
#ifndef SP_BN
#define SP_BN 32
#endif
#ifndef SP_BK
#define SP_BK 16
#endif
#define SP_TILE 64
#define SP_PARTS (SP_TILE / SP_BM)      // threadgroups that share a tile's rows: 1, or 2 halves
#define SP_ACROSS (SP_BN % 16 ? 1 : 2)  // a simdgroup makes 32 rows x so many fragments of 8 columns
#define SP_SGM (SP_BM / 32)
#define SP_SGN (SP_BN / (8 * SP_ACROSS))
#define SP_THREADS uint(32 * SP_SGM * SP_SGN)
#define SP_PAD int(16 / sizeof(SP_ELEM))  // after each row in threadgroup memory, against bank conflicts
#define SP_LDA (SP_BK + SP_PAD)
#define SP_LDB (SP_BACKWARD ? SP_BN + SP_PAD : SP_BK + SP_PAD)
#define SP_B_ROWS (SP_BACKWARD ? SP_BK : SP_BN)
#define SP_LDC (SP_BN + 4)

struct alignas(SP_VEC * sizeof(SP_ELEM)) SpPack {
    SP_ELEM v[SP_VEC];
};

inline SpPack sp_zeros() {
    SpPack p;
    for (uint i = 0; i < SP_VEC; ++i) p.v[i] = SP_ELEM(0.0f);
    return p;
}

struct SpLayer {
    uint depth, width;  // channels of a group that are summed over, and that are made
    uint taps, groups, flags, first_tile;
};

inline SpLayer sp_layer(constant long* list) {
    SpLayer l;
    l.depth = uint(list[0]);
    l.width = uint(list[1]);
    l.taps = uint(list[2]);
    l.groups = uint(list[3]);
    l.flags = uint(list[4]);
    l.first_tile = uint(list[5]);
    return l;
}

// Offset of the weight that takes channel k of group g to its channel n. Stored [C_out, K, C_in / groups].
inline ulong sp_weight_at(SpLayer l, uint g, uint tap, uint k, uint n) {
    return SP_BACKWARD ? (ulong(g * l.depth + k) * l.taps + tap) * l.width + n
                       : (ulong(g * l.width + n) * l.taps + tap) * l.depth + k;
}

enum SpFlags { sp_has_bias = 1, sp_has_residual = 2, sp_relu = 4, sp_leaky_relu = 8, sp_sigmoid = 16 };

inline float sp_activate(float y, uint flags, float alpha) {
    if (flags & sp_relu) return y < 0.0f ? 0.0f : y;  // NaN stays NaN
    if (flags & sp_leaky_relu) return y < 0.0f ? alpha * y : y;
    if (flags & sp_sigmoid) return 1.0f / (1.0f + exp(-y));
    return y;
}

typedef simdgroup_matrix<float, 8, 8> SpFragment;

struct SpProduct {
    SpFragment m[4][SP_ACROSS];
};

// Stages SP_BN columns x SP_BK channels of one tap's weight.
inline void sp_stage_weight(threadgroup SP_ELEM* bs,
                            device const SP_ELEM* weight,
                            SpLayer l,
                            uint g,
                            uint tap,
                            uint k0,
                            uint n0,
                            uint tid) {
    const uint across = (SP_BACKWARD ? SP_BN : SP_BK) / SP_VEC;
    for (uint e = tid; e < SP_B_ROWS * across; e += SP_THREADS) {
        const uint row = e / across, column = e % across * SP_VEC;
        const uint k = k0 + (SP_BACKWARD ? row : column), n = n0 + (SP_BACKWARD ? column : row);
        SpPack p = sp_zeros();
        if (k < l.depth && n < l.width) p = *(device const SpPack*)(weight + sp_weight_at(l, g, tap, k, n));
        *(threadgroup SpPack*)(bs + row * SP_LDB + column) = p;
    }
}

// Stages `count` gathered rows, filled up with zeros to whole fragments.
inline void sp_stage_rows(threadgroup SP_ELEM* as,
                          device const SP_ELEM* feats,
                          threadgroup const int* source,
                          uint count,
                          SpLayer l,
                          uint g,
                          uint k0,
                          uint tid) {
    const uint across = SP_BK / SP_VEC, stride = l.depth * l.groups;
    for (uint e = tid; e < (count + 7) / 8 * 8 * across; e += SP_THREADS) {
        const uint row = e / across, column = e % across * SP_VEC;
        SpPack p = sp_zeros();
        if (row < count && k0 + column < l.depth)
            p = *(device const SpPack*)(feats + ulong(uint(source[row])) * stride + g * l.depth + k0 + column);
        *(threadgroup SpPack*)(as + row * SP_LDA + column) = p;
    }
}

inline void sp_clear(thread SpProduct& product) {
    SP_UNROLL for (uint i = 0; i < 4; ++i) SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j) product.m[i][j] =
        make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// Fragments of rows are dealt out in turn, so that all simdgroups have work when rows are few.
inline void sp_multiply(thread SpProduct& product,
                        threadgroup const SP_ELEM* as,
                        threadgroup const SP_ELEM* bs,
                        uint count,
                        uint sg) {
    const uint column = sg % SP_SGN * (8 * SP_ACROSS);
    for (uint k = 0; k < SP_BK; k += 8) {
        simdgroup_matrix<SP_ELEM, 8, 8> a, b[SP_ACROSS];
        SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j) {
            if (SP_BACKWARD)
                simdgroup_load(b[j], bs + k * SP_LDB + column + 8 * j, SP_LDB);
            else
                simdgroup_load(b[j], bs + (column + 8 * j) * SP_LDB + k, SP_LDB, ulong2(0, 0), true);
        }
        SP_UNROLL for (uint i = 0; i < 4; ++i) {
            const uint row = (i * SP_SGM + sg / SP_SGN) * 8;
            if (row >= count) continue;  // the same for the whole simdgroup
            simdgroup_load(a, as + row * SP_LDA + k, SP_LDA);
            SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j)
                simdgroup_multiply_accumulate(product.m[i][j], a, b[j], product.m[i][j]);
        }
    }
}

// Row and column in a fragment of a lane's two elements, read off a matrix of numbers: no layout is assumed.
struct SpLane {
    uint row[2], column[2];
};

inline SpLane sp_lane_of(threadgroup float* scratch, uint tid, uint threads) {
    for (uint e = tid; e < 64; e += threads) scratch[e] = float(e);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    SpFragment numbers;
    simdgroup_load(numbers, scratch, 8);
    SpLane lane;
    SP_UNROLL for (uint n = 0; n < 2; ++n) {
        const uint at = uint(numbers.thread_elements()[n]);
        lane.row[n] = at / 8;
        lane.column[n] = at % 8;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return lane;
}

kernel void sp_conv(device const SP_ELEM* feats [[buffer(0)]],     // [N, groups * depth]
                    device const SP_ELEM* weight [[buffer(1)]],    // [C_out, K, C_in / groups]
                    device const uint* starts [[buffer(2)]],       // [tiles + 1]
                    device const uint* slots [[buffer(3)]],        // [S]
                    device const uint* begins [[buffer(4)]],       // [S + 1]
                    device const int* sources [[buffer(5)]],       // [P]
                    device const uchar* places [[buffer(6)]],      // [P]
                    device const int* rows [[buffer(7)]],          // [tiles, SP_TILE]
                    device const float* bias [[buffer(8)]],        // [groups * width]; read only if flags say so
                    device const SP_ELEM* residual [[buffer(9)]],  // [M, groups * width]; likewise
                    device SP_ELEM* out [[buffer(10)]],            // [M, groups * width]
                    constant long* layer [[buffer(11)]],
                    constant float& alpha [[buffer(12)]],
                    uint tid [[thread_index_in_threadgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]],
                    uint2 group [[threadgroup_position_in_grid]]) {
    threadgroup float sums[SP_BM * SP_LDC];
    threadgroup float4 staged[(SP_BM * SP_LDA + SP_B_ROWS * SP_LDB) * int(sizeof(SP_ELEM)) / 16];
    threadgroup int source[2 * SP_BM];  // pairs of this slot and of the next one
    threadgroup ushort place[2 * SP_BM];
    threadgroup SP_ELEM* as = (threadgroup SP_ELEM*)staged;
    threadgroup SP_ELEM* bs = as + SP_BM * SP_LDA;

    const SpLayer l = sp_layer(layer);
    const uint tiles_across = (l.width + SP_BN - 1) / SP_BN;
    const uint g = group.x / tiles_across, n0 = group.x % tiles_across * SP_BN;
    const uint tile = l.first_tile + group.y / SP_PARTS, part = group.y % SP_PARTS;
    const uint first = starts[tile], last = starts[tile + 1];

    const SpLane lane = sp_lane_of(sums, tid, SP_THREADS);
    for (uint e = tid; e < SP_BM * SP_LDC; e += SP_THREADS) sums[e] = 0.0f;
    uint count = 0;
    if (first < last) {
        const uint half_count = slots[first] >> 16, begin = begins[first] + (part ? half_count : 0u);
        count = (SP_PARTS == 2 && part == 0 ? begins[first] + half_count : begins[first + 1]) - begin;
        for (uint r = tid; r < count; r += SP_THREADS) {
            source[r] = sources[begin + r];
            place[r] = ushort(places[begin + r]) - ushort(part * SP_BM);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    SpProduct product;
    for (uint slot = first; slot < last; ++slot) {
        const uint now = ((slot - first) & 1u) * SP_BM, next = SP_BM - now;
        const uint tap = slots[slot] & 0xffffu;
        uint next_count = 0;
        if (slot + 1 < last) {  // visible after this slot's barriers, or the one below
            const uint half_count = slots[slot + 1] >> 16, begin = begins[slot + 1] + (part ? half_count : 0u);
            next_count = (SP_PARTS == 2 && part == 0 ? begins[slot + 1] + half_count : begins[slot + 2]) - begin;
            for (uint r = tid; r < next_count; r += SP_THREADS) {
                source[next + r] = sources[begin + r];
                place[next + r] = ushort(places[begin + r]) - ushort(part * SP_BM);
            }
        }
        if (count == 0) {  // the other half's slot
            threadgroup_barrier(mem_flags::mem_threadgroup);
            count = next_count;
            continue;
        }
        // Read before this slot's barriers: after them the buffer may be overwritten.
        ushort mine[4][2];
        SP_UNROLL for (uint i = 0; i < 4; ++i) {
            SP_UNROLL for (uint n = 0; n < 2; ++n) {
                const uint row = (i * SP_SGM + sg / SP_SGN) * 8 + lane.row[n];
                mine[i][n] = row < count ? place[now + row] : ushort(SP_BM);
            }
        }
        sp_clear(product);
        for (uint k0 = 0; k0 < l.depth; k0 += SP_BK) {
            sp_stage_rows(as, feats, source + now, count, l, g, k0, tid);
            sp_stage_weight(bs, weight, l, g, tap, k0, n0, tid);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            sp_multiply(product, as, bs, count, sg);
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        SP_UNROLL for (uint i = 0; i < 4; ++i) {
            SP_UNROLL for (uint n = 0; n < 2; ++n) {
                if (mine[i][n] == ushort(SP_BM)) continue;
                threadgroup float* at = sums + uint(mine[i][n]) * SP_LDC + sg % SP_SGN * (8 * SP_ACROSS);
                SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j) at[8 * j + lane.column[n]] +=
                    product.m[i][j].thread_elements()[n];
            }
        }
        count = next_count;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const uint across = SP_BN / SP_VEC;
    for (uint e = tid; e < SP_BM * across; e += SP_THREADS) {
        const uint r = e / across, column = e % across * SP_VEC, n = n0 + column;
        const int row = rows[tile * SP_TILE + part * SP_BM + r];
        if (row < 0 || n >= l.width) continue;
        const ulong at = ulong(uint(row)) * (l.width * l.groups) + g * l.width + n;
        SpPack p, extra = sp_zeros();
        if (l.flags & sp_has_residual) extra = *(device const SpPack*)(residual + at);
        for (uint v = 0; v < SP_VEC; ++v) {
            float y = sums[r * SP_LDC + column + v] + float(extra.v[v]);
            if (l.flags & sp_has_bias) y += bias[g * l.width + n + v];
            p.v[v] = SP_ELEM(sp_activate(y, l.flags, alpha));
        }
        *(device SpPack*)(out + at) = p;
    }
}

// ---- few channels ----
// A lane makes one output channel of 32 rows of a tile, whatever its group: no fragment is padded. The halves of the
// tile share nothing; a simdgroup takes one, or one after the other.
#define SP_STEP 8  // channels a round

kernel void sp_conv_small(device const SP_ELEM* feats [[buffer(0)]],
                          device const SP_ELEM* weight [[buffer(1)]],
                          device const uint* starts [[buffer(2)]],
                          device const uint* slots [[buffer(3)]],
                          device const uint* begins [[buffer(4)]],
                          device const int* sources [[buffer(5)]],
                          device const uchar* places [[buffer(6)]],
                          device const int* rows [[buffer(7)]],
                          device const float* bias [[buffer(8)]],
                          device const SP_ELEM* residual [[buffer(9)]],
                          device SP_ELEM* out [[buffer(10)]],
                          constant long* layer [[buffer(11)]],
                          constant float& alpha [[buffer(12)]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint sg [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]],
                          uint2 group [[threadgroup_position_in_grid]]) {
    threadgroup float sums[SP_TILE * 32];  // [row, lane]: a lane touches its own column only
    const SpLayer l = sp_layer(layer);
    const uint tile = l.first_tile + group.y, channel = group.x * 32 + lane, channels = l.width * l.groups;
    const bool mine = channel < channels;
    const uint g = mine ? channel / l.width : 0u, n = mine ? channel % l.width : 0u;
    for (uint part = sg; part < 2; part += simdgroups) {
        const uint row0 = part * 32;
        for (uint r = row0; r < row0 + 32; ++r) sums[r * 32 + lane] = 0.0f;
        for (uint slot = starts[tile]; slot < starts[tile + 1]; ++slot) {
            const uint tap = slots[slot] & 0xffffu, middle = begins[slot] + (slots[slot] >> 16);
            const uint begin = part ? middle : begins[slot], end = part ? begins[slot + 1] : middle;
            for (uint k0 = 0; k0 < l.depth; k0 += SP_STEP) {
                float w[SP_STEP];
                SP_UNROLL for (uint j = 0; j < SP_STEP; ++j) w[j] =
                    k0 + j < l.depth ? float(weight[sp_weight_at(l, g, tap, k0 + j, n)]) : 0.0f;
                for (uint i = begin; i < end; ++i) {
                    device const SP_ELEM* x = feats + ulong(uint(sources[i])) * (l.depth * l.groups) + g * l.depth + k0;
                    const uint at = uint(places[i]) * 32 + lane;
                    float sum = sums[at];
                    SP_UNROLL for (uint j = 0; j < SP_STEP; ++j) if (k0 + j < l.depth) sum =
                        fma(float(x[j]), w[j], sum);
                    sums[at] = sum;
                }
            }
        }
        if (!mine) continue;
        for (uint r = row0; r < row0 + 32; ++r) {
            const int row = rows[tile * SP_TILE + r];
            if (row < 0) continue;
            const ulong at = ulong(uint(row)) * channels + channel;
            float y = sums[r * 32 + lane];
            if (l.flags & sp_has_residual) y += float(residual[at]);
            if (l.flags & sp_has_bias) y += bias[channel];
            out[at] = SP_ELEM(sp_activate(y, l.flags, alpha));
        }
    }
}

// ---- weight-stationary ----
// One launch a tap, or for mirrored maps one for a tap and its mirror, which then add to sums of their own. Within a
// tap no two pairs meet in one output row, and launches follow each other, so plain additions are enough.
kernel void sp_conv_tap(device const SP_ELEM* feats [[buffer(0)]],
                        device const SP_ELEM* weight [[buffer(1)]],
                        device const int* src [[buffer(2)]],  // [P]
                        device const int* dst [[buffer(3)]],  // [P]
                        device float* sums [[buffer(4)]],     // [1 or 2, M, groups * width]
                        constant long* layer [[buffer(5)]],   // then for each tap: tap, first pair, end
                        constant uint& rows [[buffer(6)]],    // M
                        uint tid [[thread_index_in_threadgroup]],
                        uint sg [[simdgroup_index_in_threadgroup]],
                        uint3 group [[threadgroup_position_in_grid]]) {
    threadgroup float4 staged[(SP_BM * SP_LDA + SP_B_ROWS * SP_LDB) * int(sizeof(SP_ELEM)) / 16];
    threadgroup float numbers[64];
    threadgroup int source[SP_BM];
    threadgroup int target[SP_BM];
    threadgroup SP_ELEM* as = (threadgroup SP_ELEM*)staged;
    threadgroup SP_ELEM* bs = as + SP_BM * SP_LDA;

    const SpLayer l = sp_layer(layer);
    const uint tiles_across = (l.width + SP_BN - 1) / SP_BN;
    const uint g = group.x / tiles_across, n0 = group.x % tiles_across * SP_BN;
    const uint tap = uint(layer[6 + 3 * group.z]), end = uint(layer[8 + 3 * group.z]);
    const uint begin = uint(layer[7 + 3 * group.z]) + group.y * SP_BM;
    const uint count = begin < end ? min(end - begin, uint(SP_BM)) : 0u;
    const SpLane lane = sp_lane_of(numbers, tid, SP_THREADS);
    for (uint r = tid; r < count; r += SP_THREADS) {
        source[r] = src[begin + r];
        target[r] = dst[begin + r];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    SpProduct product;
    sp_clear(product);
    for (uint k0 = 0; k0 < l.depth; k0 += SP_BK) {
        sp_stage_rows(as, feats, source, count, l, g, k0, tid);
        sp_stage_weight(bs, weight, l, g, tap, k0, n0, tid);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sp_multiply(product, as, bs, count, sg);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    SP_UNROLL for (uint i = 0; i < 4; ++i) {
        const uint row = (i * SP_SGM + sg / SP_SGN) * 8;
        SP_UNROLL for (uint n = 0; n < 2; ++n) {
            if (row + lane.row[n] >= count) continue;
            const ulong at = (ulong(group.z) * rows + uint(target[row + lane.row[n]])) * (l.width * l.groups);
            SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j) {
                const uint column = n0 + sg % SP_SGN * (8 * SP_ACROSS) + 8 * j + lane.column[n];
                if (column < l.width) sums[at + g * l.width + column] += product.m[i][j].thread_elements()[n];
            }
        }
    }
}

// Adds up the sums of sp_conv_tap and, for mirrored maps, the centre tap, whose rows are the inputs as they stand.
kernel void sp_conv_finish(device const SP_ELEM* feats [[buffer(0)]],
                           device const SP_ELEM* weight [[buffer(1)]],
                           device const float* sums [[buffer(2)]],
                           device const float* bias [[buffer(3)]],
                           device const SP_ELEM* residual [[buffer(4)]],
                           device SP_ELEM* out [[buffer(5)]],
                           constant long* layer [[buffer(6)]],
                           constant float& alpha [[buffer(7)]],
                           constant uint& rows [[buffer(8)]],
                           constant uint& mirrored [[buffer(9)]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint2 group [[threadgroup_position_in_grid]]) {
    threadgroup float4 staged[(SP_BM * SP_LDA + SP_B_ROWS * SP_LDB) * int(sizeof(SP_ELEM)) / 16];
    threadgroup float numbers[64];
    threadgroup int source[SP_BM];
    threadgroup SP_ELEM* as = (threadgroup SP_ELEM*)staged;
    threadgroup SP_ELEM* bs = as + SP_BM * SP_LDA;

    const SpLayer l = sp_layer(layer);
    const uint tiles_across = (l.width + SP_BN - 1) / SP_BN, channels = l.width * l.groups;
    const uint g = group.x / tiles_across, n0 = group.x % tiles_across * SP_BN;
    const uint first = (l.first_tile + group.y) * SP_BM, count = min(rows - first, uint(SP_BM));
    const SpLane lane = sp_lane_of(numbers, tid, SP_THREADS);
    for (uint r = tid; r < count; r += SP_THREADS) source[r] = int(first + r);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    SpProduct product;
    sp_clear(product);
    for (uint k0 = 0; mirrored && k0 < l.depth; k0 += SP_BK) {
        sp_stage_rows(as, feats, source, count, l, g, k0, tid);
        sp_stage_weight(bs, weight, l, g, l.taps / 2, k0, n0, tid);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sp_multiply(product, as, bs, count, sg);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    SP_UNROLL for (uint i = 0; i < 4; ++i) {
        const uint row = (i * SP_SGM + sg / SP_SGN) * 8;
        SP_UNROLL for (uint n = 0; n < 2; ++n) {
            if (row + lane.row[n] >= count) continue;
            SP_UNROLL for (uint j = 0; j < SP_ACROSS; ++j) {
                const uint column = n0 + sg % SP_SGN * (8 * SP_ACROSS) + 8 * j + lane.column[n];
                if (column >= l.width) continue;
                const ulong at = ulong(first + row + lane.row[n]) * channels + g * l.width + column;
                float y = product.m[i][j].thread_elements()[n];
                if (!mirrored || l.taps > 1) y += sums[at];
                if (mirrored && l.taps > 1) y += sums[ulong(rows) * channels + at];
                if (l.flags & sp_has_residual) y += float(residual[at]);
                if (l.flags & sp_has_bias) y += bias[g * l.width + column];
                out[at] = SP_ELEM(sp_activate(y, l.flags, alpha));
            }
        }
    }
}
