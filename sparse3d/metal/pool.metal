// Pooling over a kernel map. Every output element looks through the taps of its row in ascending order, so sums have a
// fixed order and of equal maxima the lowest tap wins. entries[tap, row] is a pair number (see conv_plan.metal).

#define SP_EMPTY 0xffffffffu

kernel void sp_pool_sum(device const SP_ELEM* feats [[buffer(0)]],  // [N, channels]
                        device const int* src [[buffer(1)]],        // [P]
                        device const uint* entries [[buffer(2)]],   // [taps, rows]
                        device SP_ELEM* out [[buffer(3)]],          // [rows, channels]
                        constant uint& channels [[buffer(4)]],
                        constant uint& rows [[buffer(5)]],
                        constant uint& taps [[buffer(6)]],
                        uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= rows) return;
    float sum = 0.0f;
    for (uint t = 0; t < taps; ++t) {
        const uint pair = entries[ulong(t) * rows + at.y];
        if (pair != SP_EMPTY) sum += float(feats[ulong(uint(src[pair])) * channels + at.x]);
    }
    out[ulong(at.y) * channels + at.x] = SP_ELEM(sum);
}

kernel void sp_pool_max(device const SP_ELEM* feats [[buffer(0)]],
                        device const int* src [[buffer(1)]],
                        device const uint* entries [[buffer(2)]],
                        device SP_ELEM* out [[buffer(3)]],
                        device int* arg [[buffer(4)]],  // [rows, channels] input row, -1 = none
                        constant uint& channels [[buffer(5)]],
                        constant uint& rows [[buffer(6)]],
                        constant uint& taps [[buffer(7)]],
                        uint2 at [[thread_position_in_grid]]) {
    if (at.x >= channels || at.y >= rows) return;
    float best = 0.0f;
    int owner = sp_absent;
    for (uint t = 0; t < taps; ++t) {
        const uint pair = entries[ulong(t) * rows + at.y];
        if (pair == SP_EMPTY) continue;
        const float value = float(feats[ulong(uint(src[pair])) * channels + at.x]);
        if (owner < 0 || value > best || (isnan(value) && !isnan(best))) {
            best = value;
            owner = src[pair];
        }
    }
    out[ulong(at.y) * channels + at.x] = SP_ELEM(best);
    arg[ulong(at.y) * channels + at.x] = owner;
}

// Of the outputs that input row `at.y` reaches, the gradients of those whose maximum it is.
kernel void sp_pool_max_grad(device const SP_ELEM* grad [[buffer(0)]],  // [M, channels]
                             device const int* arg [[buffer(1)]],       // [M, channels]
                             device const int* dst [[buffer(2)]],       // [P]
                             device const uint* entries [[buffer(3)]],  // [taps, rows], rows are inputs
                             device SP_ELEM* out [[buffer(4)]],         // [rows, channels]
                             constant uint& channels [[buffer(5)]],
                             constant uint& rows [[buffer(6)]],
                             constant uint& taps [[buffer(7)]],
                             uint2 at [[thread_position_in_grid]]) {
    if (at.x >= channels || at.y >= rows) return;
    float sum = 0.0f;
    for (uint t = 0; t < taps; ++t) {
        const uint pair = entries[ulong(t) * rows + at.y];
        if (pair == SP_EMPTY) continue;
        const ulong from = ulong(uint(dst[pair])) * channels + at.x;
        if (arg[from] == int(at.y)) sum += float(grad[from]);
    }
    out[ulong(at.y) * channels + at.x] = SP_ELEM(sum);
}
