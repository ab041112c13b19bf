// Batch normalisation in training, with a residual and ReLU behind it where asked for. Sums over rows: one thread a
// channel and a chunk of 512 rows, then the chunks in order, so that the result does not depend on how the work is
// spread.

#define SP_CHUNK 512
#define SP_PLAIN 0u     // the norm alone; these three must match norm.py
#define SP_RELU 1u      // and ReLU
#define SP_SUM_RELU 2u  // and a residual before ReLU

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

// A normalised value before the norm's scale and shift.
inline float sp_unit(float x, float mean, float var, float eps) { return (x - mean) / sqrt(var + eps); }

// What the norm gives, rounded as it is stored. The gradient makes it again to know where ReLU let it through: hence
// the product and sum in one operation, whatever the compiler would make of two.
inline SP_ELEM sp_normed(float x, float mean, float var, float eps, float weight, float bias) {
    return SP_ELEM(fma(sp_unit(x, mean, var, eps), weight, bias));
}

kernel void sp_norm_apply(device const SP_ELEM* feats [[buffer(0)]],
                          device const float* weight [[buffer(1)]],  // [channels]
                          device const float* bias [[buffer(2)]],    // [channels]
                          device const float* mean [[buffer(3)]],
                          device const float* var [[buffer(4)]],
                          device const SP_ELEM* residual [[buffer(5)]],  // read if SP_SUM_RELU
                          device SP_ELEM* out [[buffer(6)]],
                          constant uint& channels [[buffer(7)]],
                          constant uint& rows [[buffer(8)]],
                          constant float& eps [[buffer(9)]],
                          constant uint& mode [[buffer(10)]],
                          uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= rows) return;
    const ulong i = ulong(at.y) * channels + at.x;
    SP_ELEM y = sp_normed(float(feats[i]), mean[at.x], var[at.x], eps, weight[at.x], bias[at.x]);
    if (mode == SP_SUM_RELU) y = SP_ELEM(float(y) + float(residual[i]));
    if (mode != SP_PLAIN && float(y) <= 0.0f) y = SP_ELEM(0.0f);  // NaN stays
    out[i] = y;
}

// The upstream gradient of an element as far as ReLU lets it through; `shown` is what ReLU was given, or gave.
inline float sp_passed(float grad, float shown, uint mode) { return mode != SP_PLAIN && shown <= 0.0f ? 0.0f : grad; }

// Partial sums of the upstream gradient, and of it times the normalised rows.
kernel void sp_norm_grad_sums(device const SP_ELEM* grad [[buffer(0)]],
                              device const SP_ELEM* feats [[buffer(1)]],
                              device const float* weight [[buffer(2)]],  // [channels]; read if SP_RELU, as bias
                              device const float* bias [[buffer(3)]],
                              device const float* mean [[buffer(4)]],
                              device const float* var [[buffer(5)]],
                              device const SP_ELEM* made [[buffer(6)]],  // what ReLU gave; read if SP_SUM_RELU
                              device float* plain [[buffer(7)]],         // [chunks, channels]
                              device float* weighted [[buffer(8)]],      // [chunks, channels]
                              constant uint& channels [[buffer(9)]],
                              constant uint& rows [[buffer(10)]],
                              constant float& eps [[buffer(11)]],
                              constant uint& mode [[buffer(12)]],
                              uint2 at [[thread_position_in_grid]]) {  // channel, chunk
    if (at.x >= channels) return;
    const SpChunk c = sp_rows_of(at.y, rows);
    const float centre = mean[at.x], spread = var[at.x], scale = 1.0f / sqrt(spread + eps);
    const float gain = weight[at.x], offset = bias[at.x];
    float sum = 0.0f, product = 0.0f;
    for (uint r = c.begin; r < c.end; ++r) {
        const ulong i = ulong(r) * channels + at.x;
        const float x = float(feats[i]);
        float shown = 0.0f;
        if (mode == SP_RELU) shown = float(sp_normed(x, centre, spread, eps, gain, offset));
        if (mode == SP_SUM_RELU) shown = float(made[i]);
        const float g = sp_passed(float(grad[i]), shown, mode);
        sum += g;
        product += g * ((x - centre) * scale);
    }
    plain[at.y * channels + at.x] = sum;
    weighted[at.y * channels + at.x] = product;
}

kernel void sp_norm_grad_apply(device const SP_ELEM* grad [[buffer(0)]],
                               device const SP_ELEM* feats [[buffer(1)]],
                               device const float* weight [[buffer(2)]],
                               device const float* bias [[buffer(3)]],  // read if SP_RELU
                               device const float* mean [[buffer(4)]],
                               device const float* var [[buffer(5)]],
                               device const SP_ELEM* made [[buffer(6)]],     // read if SP_SUM_RELU
                               device const float* to_weight [[buffer(7)]],  // [channels]
                               device const float* to_bias [[buffer(8)]],    // [channels]
                               device SP_ELEM* out [[buffer(9)]],
                               device SP_ELEM* to_residual [[buffer(10)]],  // written if SP_SUM_RELU
                               constant uint& channels [[buffer(11)]],
                               constant uint& rows [[buffer(12)]],
                               constant float& eps [[buffer(13)]],
                               constant uint& mode [[buffer(14)]],
                               uint2 at [[thread_position_in_grid]]) {  // channel, row
    if (at.x >= channels || at.y >= rows) return;
    const ulong i = ulong(at.y) * channels + at.x;
    const float x = float(feats[i]), centre = mean[at.x], spread = var[at.x], gain = weight[at.x];
    float shown = 0.0f;
    if (mode == SP_RELU) shown = float(sp_normed(x, centre, spread, eps, gain, bias[at.x]));
    if (mode == SP_SUM_RELU) shown = float(made[i]);
    const float g = sp_passed(float(grad[i]), shown, mode);
    if (mode == SP_SUM_RELU) to_residual[i] = SP_ELEM(g);
    const float scale = 1.0f / sqrt(spread + eps), count = float(rows);
    const float inner = g - to_bias[at.x] / count - (x - centre) * scale * (to_weight[at.x] / count);
    out[i] = SP_ELEM(inner * (scale * gain));
}
