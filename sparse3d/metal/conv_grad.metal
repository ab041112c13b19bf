// Weight gradient. Pairs are grouped by tap and cut into chunks that never cross taps. Pass 1: one threadgroup makes
// SP_BO x SP_BI of one chunk's partial sum. Pass 2 adds a tap's chunks in order, so the result is the same every time.

#ifndef SP_VEC
#define SP_VEC 1
#endif
#ifndef SP_BO  // output channels a threadgroup makes; 32 a simdgroup
#define SP_BO 32
#endif
#ifndef SP_BI  // input channels; 16 a simdgroup
#define SP_BI 32
#endif
#ifndef SP_BP  // pairs a step
#define SP_BP 16
#endif
#define SP_SGO (SP_BO / 32)
#define SP_SGI (SP_BI / 16)
#define SP_THREADS uint(32 * SP_SGO * SP_SGI)
#define SP_PAD int(16 / sizeof(SP_ELEM))
#define SP_LDX (SP_BI + SP_PAD)
#define SP_LDG (SP_BO + SP_PAD)
#define SP_LDP (SP_BI + 4)
#define SP_STAGED (SP_BP * (SP_LDX + SP_LDG) * int(sizeof(SP_ELEM)))
#define SP_PARTIAL (SP_SGO * 8 * SP_LDP * 4)

struct alignas(SP_VEC * sizeof(SP_ELEM)) SpPack {
    SP_ELEM v[SP_VEC];
};

// Loads SP_BP rows of `across` channels into threadgroup memory; absent rows and channels are 0.
inline void sp_stage(threadgroup SP_ELEM* to,
                     uint stride,
                     uint across,
                     device const SP_ELEM* from,
                     uint channels,
                     uint first,
                     uint limit,
                     threadgroup const int* rows,
                     uint tid) {
    const uint packs = across / SP_VEC;
    for (uint e = tid; e < SP_BP * packs; e += SP_THREADS) {
        const uint r = e / packs, c = e % packs * SP_VEC;
        const int row = rows[r];
        SpPack v;
        for (uint i = 0; i < SP_VEC; ++i) v.v[i] = SP_ELEM(0.0f);
        if (row >= 0 && first + c < limit) v = *(device const SpPack*)(from + ulong(uint(row)) * channels + first + c);
        *(threadgroup SpPack*)(to + r * stride + c) = v;
    }
}

kernel void sp_weight_grad(device const SP_ELEM* feats [[buffer(0)]],  // [N, groups * inner]
                           device const SP_ELEM* grad [[buffer(1)]],   // [M, groups * outer]
                           device const int* src [[buffer(2)]],        // [P]
                           device const int* dst [[buffer(3)]],        // [P]
                           device const int* chunk [[buffer(4)]],      // [chunks + 1] first pair of each
                           device float* partial [[buffer(5)]],        // [chunks here, groups * outer, inner]
                           constant uint& inner [[buffer(6)]],         // C_in / groups
                           constant uint& outer [[buffer(7)]],         // C_out / groups
                           constant uint& groups [[buffer(8)]],
                           constant uint& first_chunk [[buffer(9)]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint3 group [[threadgroup_position_in_grid]]) {
    threadgroup float4 pool[(SP_STAGED > SP_PARTIAL ? SP_STAGED : SP_PARTIAL) / 16];
    threadgroup int pairs[4 * SP_BP];  // src and dst of this step and of the next one
    threadgroup SP_ELEM* xs = (threadgroup SP_ELEM*)pool;
    threadgroup SP_ELEM* gs = xs + SP_BP * SP_LDX;
    threadgroup float* ps = (threadgroup float*)pool;

    const uint tiles = (outer + SP_BO - 1) / SP_BO, g = group.y / tiles;
    const uint i0 = group.x * SP_BI, o0 = group.y % tiles * SP_BO;
    const uint begin = uint(chunk[first_chunk + group.z]), end = uint(chunk[first_chunk + group.z + 1]);
    const uint o_of_sg = sg / SP_SGI * 32, i_of_sg = sg % SP_SGI * 16;

    simdgroup_matrix<float, 8, 8> acc[4][2];
    SP_UNROLL for (uint i = 0; i < 4; ++i) SP_UNROLL for (uint j = 0; j < 2; ++j) acc[i][j] =
        make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

    for (uint e = tid; e < SP_BP; e += SP_THREADS) {
        pairs[e] = begin + e < end ? src[begin + e] : sp_absent;
        pairs[SP_BP + e] = begin + e < end ? dst[begin + e] : sp_absent;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint now = 0;
    for (uint p0 = begin; p0 < end; p0 += SP_BP) {
        const uint next = 2 * SP_BP - now;
        for (uint e = tid; e < SP_BP; e += SP_THREADS) {
            const uint p = p0 + SP_BP + e;
            pairs[next + e] = p < end ? src[p] : sp_absent;
            pairs[next + SP_BP + e] = p < end ? dst[p] : sp_absent;
        }
        sp_stage(xs, SP_LDX, SP_BI, feats + g * inner, groups * inner, i0, inner, pairs + now, tid);
        sp_stage(gs, SP_LDG, SP_BO, grad + g * outer, groups * outer, o0, outer, pairs + now + SP_BP, tid);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < SP_BP; k += 8) {
            simdgroup_matrix<SP_ELEM, 8, 8> a, b[2];
            SP_UNROLL for (uint j = 0; j < 2; ++j) simdgroup_load(b[j], xs + k * SP_LDX + i_of_sg + 8 * j, SP_LDX);
            SP_UNROLL for (uint i = 0; i < 4; ++i) {
                simdgroup_load(a, gs + k * SP_LDG + o_of_sg + 8 * i, SP_LDG, ulong2(0, 0), true);
                SP_UNROLL for (uint j = 0; j < 2; ++j) simdgroup_multiply_accumulate(acc[i][j], a, b[j], acc[i][j]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        now = next;
    }
    SP_UNROLL for (uint i = 0; i < 4; ++i) {  // 8 rows of every simdgroup at a time: little threadgroup memory
        SP_UNROLL for (uint j = 0; j < 2; ++j)
            simdgroup_store(acc[i][j], ps + sg / SP_SGI * 8 * SP_LDP + i_of_sg + 8 * j, SP_LDP);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint e = tid; e < SP_SGO * 8 * SP_BI; e += SP_THREADS) {
            const uint r = e / SP_BI, c = i0 + e % SP_BI, o = o0 + r / 8 * 32 + i * 8 + r % 8;
            if (c < inner && o < outer)
                partial[(ulong(group.z) * groups * outer + g * outer + o) * inner + c] = ps[r * SP_LDP + e % SP_BI];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// For few channels: one thread an element of a chunk's partial sum.
kernel void sp_weight_grad_small(device const SP_ELEM* feats [[buffer(0)]],
                                 device const SP_ELEM* grad [[buffer(1)]],
                                 device const int* src [[buffer(2)]],
                                 device const int* dst [[buffer(3)]],
                                 device const int* chunk [[buffer(4)]],
                                 device float* partial [[buffer(5)]],
                                 constant uint& inner [[buffer(6)]],
                                 constant uint& outer [[buffer(7)]],
                                 constant uint& groups [[buffer(8)]],
                                 constant uint& first_chunk [[buffer(9)]],
                                 uint2 at [[thread_position_in_grid]]) {  // element, chunk
    const uint size = groups * outer * inner;
    if (at.x >= size) return;
    const uint o = at.x / inner, c = o / outer * inner + at.x % inner;
    float sum = 0.0f;
    for (int p = chunk[first_chunk + at.y]; p < chunk[first_chunk + at.y + 1]; ++p)
        sum = fma(float(grad[ulong(uint(dst[p])) * (groups * outer) + o]),
                  float(feats[ulong(uint(src[p])) * (groups * inner) + c]), sum);
    partial[ulong(at.y) * size + at.x] = sum;
}

// out[o, tap, c] += the partial sums of the tap's chunks in [first, last), in order.
kernel void sp_weight_grad_sum(device const float* partial [[buffer(0)]],  // [last - first, C_out, inner]
                               device const int* tap_chunk [[buffer(1)]],  // [taps + 1] first chunk of each tap
                               device float* out [[buffer(2)]],            // [C_out, taps, inner]
                               constant uint& size [[buffer(3)]],          // C_out * inner
                               constant uint& inner [[buffer(4)]],
                               constant uint& taps [[buffer(5)]],
                               constant int& first [[buffer(6)]],
                               constant int& last [[buffer(7)]],
                               uint2 at [[thread_position_in_grid]]) {  // element, tap
    if (at.x >= size || at.y >= taps) return;
    const int begin = max(tap_chunk[at.y], first), end = min(tap_chunk[at.y + 1], last);
    if (begin >= end) return;
    const ulong to = (ulong(at.x / inner) * taps + at.y) * inner + at.x % inner;
    float sum = out[to];
    for (int c = begin; c < end; ++c) sum += partial[ulong(uint(c - first)) * size + at.x];
    out[to] = sum;
}
