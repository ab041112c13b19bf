// Batch normalisation in training. Sums over rows: one thread a channel and a chunk of 512 rows, then the chunks in
// order, so that the result does not depend on how the work is spread.

#define SP_CHUNK 512

struct SpChunk {
    uint begin, end;
};

inline SpChunk sp_rows_of(uint chunk, uint rows) {
    SpChunk c;
    c.begin = chunk * SP_CHUNK;
    c.end = min(c.begin + SP_CHUNK, rows);
    return c;
}

// partial[chunk] = sum of x (squared = 0), or of (x - mean)^2 (squared = 1).
kernel void sp_norm_sums(device const SP_ELEM* feats [[buffer(0)]],  // [rows, channels]
                         device const float* mean [[buffer(1)]],     // [channels]; read if squared
                         device float* partial [[buffer(2)]],        // [chunks, channels]
                         constant uint& channels [[buffer(3)]],
                         constant uint& rows [[buffer(4)]],
                         constant uint& squared [[buffer(5)]],
                         uint2 at [[thread_position_in_grid]]) {  // channel, chunk
    if (at.x >= channels) return;
    const SpChunk c = sp_rows_of(at.y, rows);
    const float centre = squared ? mean[at.x] : 0.0f;
    float sum = 0.0f;
    for (uint r = c.begin; r < c.end; ++r) {
        const float x = float(feats[ulong(r) * channels + at.x]) - centre;
        sum += squared ? x * x : x;
    }
    partial[at.y * channels + at.x] = sum;
}

// out[channel] = the chunks' sum / divisor.
kernel void sp_norm_total(device const float* partial [[buffer(0)]],
                          device float* out [[buffer(1)]],  // [channels]
                          constant uint& channels [[buffer(2)]],
                          constant uint& chunks [[buffer(3)]],
                          constant float& divisor [[buffer(4)]],
                          uint c [[thread_position_in_grid]]) {
    if (c >= channels) return;
    float sum = 0.0f;
    for (uint k = 0; k < chunks; ++k) sum += partial[k * channels + c];
    out[c] = sum / divisor;
}

kernel void sp_norm_apply(device const SP_ELEM* feats [[buffer(0)]],
                          device const float* weight [[buffer(1)]],  // [channels]
                          device const float* bias [[buffer(2)]],    // [channels]
                          device const float* mean [[buffer(3)]],
                          device const float* var [[buffer(4)]],
                          device SP_ELEM* out [[buffer(5)]],
                          constant uint& channels [[buffer(6)]],
                          constant uint& rows [[buffer(7)]],
                          constant float& eps [[buffer(8)]],
                          uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= rows) return;
    const ulong i = ulong(at.y) * channels + at.x;
    const float unit = (float(feats[i]) - mean[at.x]) / sqrt(var[at.x] + eps);
    out[i] = SP_ELEM(unit * weight[at.x] + bias[at.x]);
}

// Partial sums of the upstream gradient, and of it times the normalised rows.
kernel void sp_norm_grad_sums(device const SP_ELEM* grad [[buffer(0)]],
                              device const SP_ELEM* feats [[buffer(1)]],
                              device const float* mean [[buffer(2)]],
                              device const float* var [[buffer(3)]],
                              device float* plain [[buffer(4)]],     // [chunks, channels]
                              device float* weighted [[buffer(5)]],  // [chunks, channels]
                              constant uint& channels [[buffer(6)]],
                              constant uint& rows [[buffer(7)]],
                              constant float& eps [[buffer(8)]],
                              uint2 at [[thread_position_in_grid]]) {  // channel, chunk
    if (at.x >= channels) return;
    const SpChunk c = sp_rows_of(at.y, rows);
    const float scale = 1.0f / sqrt(var[at.x] + eps), centre = mean[at.x];
    float sum = 0.0f, product = 0.0f;
    for (uint r = c.begin; r < c.end; ++r) {
        const ulong i = ulong(r) * channels + at.x;
        const float g = float(grad[i]);
        sum += g;
        product += g * ((float(feats[i]) - centre) * scale);
    }
    plain[at.y * channels + at.x] = sum;
    weighted[at.y * channels + at.x] = product;
}

kernel void sp_norm_grad_apply(device const SP_ELEM* grad [[buffer(0)]],
                               device const SP_ELEM* feats [[buffer(1)]],
                               device const float* weight [[buffer(2)]],
                               device const float* mean [[buffer(3)]],
                               device const float* var [[buffer(4)]],
                               device const float* to_weight [[buffer(5)]],  // [channels]
                               device const float* to_bias [[buffer(6)]],    // [channels]
                               device SP_ELEM* out [[buffer(7)]],
                               constant uint& channels [[buffer(8)]],
                               constant uint& rows [[buffer(9)]],
                               constant float& eps [[buffer(10)]],
                               uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= rows) return;
    const ulong i = ulong(at.y) * channels + at.x;
    const float scale = 1.0f / sqrt(var[at.x] + eps), count = float(rows);
    const float unit = (float(feats[i]) - mean[at.x]) * scale;
    const float inner = float(grad[i]) - to_bias[at.x] / count - unit * (to_weight[at.x] / count);
    out[i] = SP_ELEM(inner * (scale * weight[at.x]));
}
