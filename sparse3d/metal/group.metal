// Columns of channel-first feature maps: gathered, or summed three by three with weights. One thread an output.
#pragma clang fp contract(off)

kernel void sp_gather_columns(device const SP_ELEM* features [[buffer(0)]],  // [lines, columns]
                              device const long* idx [[buffer(1)]],          // [batch, places], -1 gives zero
                              device SP_ELEM* out [[buffer(2)]],             // [lines, places]
                              constant uint& channels [[buffer(3)]],
                              constant uint& columns [[buffer(4)]],
                              constant uint& places [[buffer(5)]],
                              constant uint& lines [[buffer(6)]],
                              uint2 at [[thread_position_in_grid]]) {  // place, line
    if (at.x >= places || at.y >= lines) return;
    const long column = idx[ulong(at.y / channels) * places + at.x];
    const SP_ELEM value = column < 0 ? SP_ELEM(0.0f) : features[ulong(at.y) * columns + ulong(column)];
    out[ulong(at.y) * places + at.x] = value;
}

kernel void sp_interpolate_columns(device const SP_ELEM* features [[buffer(0)]],  // [lines, columns]
                                   device const long* idx [[buffer(1)]],          // [batch, places, 3]
                                   device const float* weight [[buffer(2)]],      // [batch, places, 3]
                                   device SP_ELEM* out [[buffer(3)]],             // [lines, places]
                                   constant uint& channels [[buffer(4)]],
                                   constant uint& columns [[buffer(5)]],
                                   constant uint& places [[buffer(6)]],
                                   constant uint& lines [[buffer(7)]],
                                   uint2 at [[thread_position_in_grid]]) {  // place, line
    if (at.x >= places || at.y >= lines) return;
    const ulong corner = (ulong(at.y / channels) * places + at.x) * 3;
    device const SP_ELEM* line = features + ulong(at.y) * columns;
    float sum = 0.0f;
    for (uint c = 0; c < 3; ++c) {
        const float term = float(line[ulong(idx[corner + c])]) * weight[corner + c];
        sum = c == 0 ? term : sum + term;
    }
    out[ulong(at.y) * places + at.x] = SP_ELEM(sum);
}
