// Segment reductions over rows sorted by segment: chunks of 512 entries of a segment, then its chunks in order. The
// count of chunks is not read back; threads beyond it do nothing.

#ifndef SP_WEIGHTED  // 1: entry e stands for weights[e] * values[e / corners]
#define SP_WEIGHTED 0
#endif
#define SP_CHUNK 512

// counts[s] = chunks of segment s.
kernel void sp_segment_chunks(device const int* starts [[buffer(0)]],  // [segments + 1]
                              device int* counts [[buffer(1)]],        // [segments + 1]
                              constant uint& segments [[buffer(2)]],
                              uint s [[thread_position_in_grid]]) {
    if (s < segments) counts[s] = (starts[s + 1] - starts[s] + SP_CHUNK - 1) / SP_CHUNK;
}

struct SpRange {
    int begin, end;
};

// Entries of a chunk; none if there is no such chunk.
inline SpRange sp_chunk(device const int* starts, device const int* chunks, uint segments, uint chunk) {
    SpRange range;
    range.begin = range.end = 0;
    if (int(chunk) >= chunks[segments]) return range;
    uint low = 0, high = segments;
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (chunks[middle] <= int(chunk))
            low = middle;
        else
            high = middle;
    }
    range.begin = starts[low] + (int(chunk) - chunks[low]) * SP_CHUNK;
    range.end = min(range.begin + SP_CHUNK, starts[low + 1]);
    return range;
}

kernel void sp_segment_sum(device const SP_ELEM* values [[buffer(0)]],  // [rows, channels]
                           device const int* order [[buffer(1)]],       // [entries] by segment
                           device const float* weights [[buffer(2)]],   // [entries]; read if SP_WEIGHTED
                           device const int* starts [[buffer(3)]],      // [segments + 1]
                           device const int* chunks [[buffer(4)]],      // [segments + 1]
                           device float* partial [[buffer(5)]],         // [most chunks, channels]
                           constant uint& channels [[buffer(6)]],
                           constant uint& segments [[buffer(7)]],
                           constant uint& most_chunks [[buffer(8)]],
                           constant uint& corners [[buffer(9)]],
                           uint2 at [[thread_position_in_grid]]) {  // channel, chunk
    if (at.x >= channels || at.y >= most_chunks) return;
    const SpRange range = sp_chunk(starts, chunks, segments, at.y);
    float sum = 0.0f;
    for (int i = range.begin; i < range.end; ++i) {
        const uint entry = uint(order[i]);
        const float value = float(values[ulong(SP_WEIGHTED ? entry / corners : entry) * channels + at.x]);
        sum = SP_WEIGHTED ? fma(weights[entry], value, sum) : sum + value;
    }
    if (range.begin < range.end) partial[ulong(at.y) * channels + at.x] = sum;
}

kernel void sp_segment_total(device const float* partial [[buffer(0)]],
                             device const int* chunks [[buffer(1)]],
                             device SP_ELEM* out [[buffer(2)]],  // [segments, channels]
                             constant uint& channels [[buffer(3)]],
                             constant uint& segments [[buffer(4)]],
                             uint2 at [[thread_position_in_grid]]) {  // channel, segment
    if (at.x >= channels || at.y >= segments) return;
    float sum = 0.0f;
    for (int c = chunks[at.y]; c < chunks[at.y + 1]; ++c) sum += partial[ulong(uint(c)) * channels + at.x];
    out[ulong(at.y) * channels + at.x] = SP_ELEM(sum);
}

struct SpBest {
    float value;
    int row;
};

// The later of two wins if it is greater, or the first NaN; rows come in ascending order, so ties stay with the lowest.
inline SpBest sp_better(SpBest best, float value, int row) {
    if (best.row < 0 || value > best.value || (isnan(value) && !isnan(best.value))) {
        best.value = value;
        best.row = row;
    }
    return best;
}

kernel void sp_segment_max(device const SP_ELEM* values [[buffer(0)]],
                           device const int* order [[buffer(1)]],
                           device const int* starts [[buffer(2)]],
                           device const int* chunks [[buffer(3)]],
                           device int* partial [[buffer(4)]],  // [most chunks, channels] row of the maximum
                           constant uint& channels [[buffer(5)]],
                           constant uint& segments [[buffer(6)]],
                           constant uint& most_chunks [[buffer(7)]],
                           uint2 at [[thread_position_in_grid]]) {
    if (at.x >= channels || at.y >= most_chunks) return;
    const SpRange range = sp_chunk(starts, chunks, segments, at.y);
    SpBest best;
    best.value = 0.0f;
    best.row = sp_absent;
    for (int i = range.begin; i < range.end; ++i)
        best = sp_better(best, float(values[ulong(uint(order[i])) * channels + at.x]), order[i]);
    if (range.begin < range.end) partial[ulong(at.y) * channels + at.x] = best.row;
}

kernel void sp_segment_best(device const SP_ELEM* values [[buffer(0)]],
                            device const int* partial [[buffer(1)]],
                            device const int* chunks [[buffer(2)]],
                            device SP_ELEM* out [[buffer(3)]],  // [segments, channels]
                            device long* arg [[buffer(4)]],     // [segments, channels]
                            constant uint& channels [[buffer(5)]],
                            constant uint& segments [[buffer(6)]],
                            uint2 at [[thread_position_in_grid]]) {
    if (at.x >= channels || at.y >= segments) return;
    SpBest best;
    best.value = 0.0f;
    best.row = sp_absent;
    for (int c = chunks[at.y]; c < chunks[at.y + 1]; ++c) {
        const int row = partial[ulong(uint(c)) * channels + at.x];
        best = sp_better(best, float(values[ulong(uint(row)) * channels + at.x]), row);
    }
    out[ulong(at.y) * channels + at.x] = SP_ELEM(best.value);
    arg[ulong(at.y) * channels + at.x] = long(best.row);
}
