// Baseline of the traffic table: one thread makes one output scalar.
#include <metal_stdlib>
using namespace metal;

kernel void sp_naive(device const SP_ELEM* feats [[buffer(0)]],   // [N, cin]
                     device const SP_ELEM* weight [[buffer(1)]],  // [taps, cin, cout]
                     device const int* neighbours [[buffer(2)]],  // [rows, taps]
                     device SP_ELEM* out [[buffer(3)]],           // [rows, cout]
                     constant uint& rows [[buffer(4)]], constant uint& taps [[buffer(5)]],
                     constant uint& cin [[buffer(6)]], constant uint& cout [[buffer(7)]],
                     uint2 at [[thread_position_in_grid]]) {  // channel, row
  if (at.x >= cout || at.y >= rows) return;
  float sum = 0.0f;
  for (uint t = 0; t < taps; ++t) {
    const int source = neighbours[ulong(at.y) * taps + t];
    if (source < 0) continue;
    for (uint c = 0; c < cin; ++c)
      sum = fma(float(feats[ulong(uint(source)) * cin + c]),
                float(weight[(ulong(t) * cin + c) * cout + at.x]), sum);
  }
  out[ulong(at.y) * cout + at.x] = SP_ELEM(sum);
}
