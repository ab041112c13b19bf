// Farthest point sampling. `sp_fps`: a threadgroup a cloud, all samples in one launch. `sp_fps_step` and `sp_fps_pick`:
// many groups on one cloud, a launch a sample and one at the end. Of equal distances the smaller rank wins; a bit-exact
// distance needs no fused operations.
#pragma clang fp contract(off)

#define SP_CLOUD 6  // columns of the table: first and last row, output begin and end, start row, base
#define SP_NO_RANK 0xffffffffu

// Place in the order that decides ties: the row itself, or (row mod slots with its bits reversed, row).
inline uint sp_rank(uint row, uint slots, uint turns) {
    if (slots == 0) return row;
    uint slot = row % slots, reversed = 0;
    for (uint s = slots; s > 1; s /= 2) {
        reversed = reversed * 2 + slot % 2;
        slot /= 2;
    }
    return reversed * turns + row / slots;
}
inline uint sp_row_of(uint rank, uint slots, uint turns) {
    if (slots == 0) return rank;
    uint reversed = rank / turns, slot = 0;
    for (uint s = slots; s > 1; s /= 2) {
        slot = slot * 2 + reversed % 2;
        reversed /= 2;
    }
    return rank % turns * slots + slot;
}

// A row's distance to what is taken, before the first sample: -1 bars it for good.
inline float sp_fresh(device const float* point, uint dim, uint skip_near_origin) {
    if (skip_near_origin == 0) return INFINITY;
    float norm = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float square = point[axis] * point[axis];
        norm = axis == 0 ? square : norm + square;
    }
    return norm < 0.001f ? -1.0f : INFINITY;  // a float is <= 1e-3 exactly where it is below 0.001f
}

inline float sp_nearer(float best, device const float* point, device const float* taken, uint dim) {
    float sum = 0.0f;
    for (uint axis = 0; axis < dim; ++axis) {
        const float difference = point[axis] - taken[axis];
        const float square = difference * difference;
        sum = axis == 0 ? square : sum + square;
    }
    return min(best, sum);
}

struct SpPick {
    float best;
    uint rank;
};

inline SpPick sp_farther(SpPick a, float best, uint rank) {
    if (best > a.best || (best == a.best && rank < a.rank)) {
        a.best = best;
        a.rank = rank;
    }
    return a;
}

// The farthest over a simdgroup, in all its lanes.
inline SpPick sp_simd_farthest(SpPick mine) {
    SpPick all;
    all.best = simd_max(mine.best);
    all.rank = simd_min(mine.best == all.best ? mine.rank : SP_NO_RANK);
    return all;
}

kernel void sp_fps(device const float* points [[buffer(0)]],  // [points, dim]
                   device const int* table [[buffer(1)]],     // [clouds, SP_CLOUD]
                   device float* best [[buffer(2)]],          // [points]
                   device long* taken [[buffer(3)]],
                   constant uint& dim [[buffer(4)]],
                   constant uint& stay [[buffer(5)]],
                   constant uint& skip_near_origin [[buffer(6)]],
                   constant uint& slots [[buffer(7)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint tid [[thread_index_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float part_best[32];
    threadgroup uint part_rank[32];
    threadgroup int chosen;

    device const int* cloud = table + group * SP_CLOUD;
    const uint n = uint(cloud[1] - cloud[0]);
    const int shift = cloud[0] - cloud[5];
    const uint turns = slots == 0 ? 1u : (n + slots - 1) / slots;
    device const float* mine = points + ulong(uint(cloud[0])) * dim;
    device float* distance = best + cloud[0];
    for (uint i = tid; i < n; i += threads) distance[i] = sp_fresh(mine + ulong(i) * dim, dim, skip_near_origin);
    if (tid == 0) chosen = cloud[4] - cloud[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int out = cloud[2]; out < cloud[3]; ++out) {
        const int now = chosen;
        if (tid == 0) taken[out] = long(max(now, 0) + shift);
        SpPick pick;
        pick.best = -1.0f;
        pick.rank = SP_NO_RANK;
        for (uint i = tid; i < n && now >= 0; i += threads) {
            const bool gone = stay == 0 && int(i) == now;
            const float d =
                gone ? -1.0f : sp_nearer(distance[i], mine + ulong(i) * dim, mine + ulong(uint(now)) * dim, dim);
            distance[i] = d;
            if (d >= 0.0f) pick = sp_farther(pick, d, sp_rank(i, slots, turns));
        }
        pick = sp_simd_farthest(pick);
        if (lane == 0) {
            part_best[sg] = pick.best;
            part_rank[sg] = pick.rank;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (sg == 0) {
            pick.best = lane < simdgroups ? part_best[lane] : -1.0f;
            pick.rank = lane < simdgroups ? part_rank[lane] : SP_NO_RANK;
            pick = sp_simd_farthest(pick);
            if (lane == 0) chosen = pick.rank == SP_NO_RANK ? sp_absent : int(sp_row_of(pick.rank, slots, turns));
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// The farthest row that the groups of a launch left, -1 for none; a whole simdgroup asks.
inline int sp_picked(device const float* part_best,
                     device const uint* part_rank,
                     uint parts,
                     uint slots,
                     uint turns,
                     uint lane) {
    SpPick pick;
    pick.best = -1.0f;
    pick.rank = SP_NO_RANK;
    for (uint i = lane; i < parts; i += 32) pick = sp_farther(pick, part_best[i], part_rank[i]);
    pick = sp_simd_farthest(pick);
    return pick.rank == SP_NO_RANK ? sp_absent : int(sp_row_of(pick.rank, slots, turns));
}

// Every group finds out which row became sample `out - 1`, updates its distances to it and leaves its farthest row.
// At the first sample distances begin. What groups leave goes into one half of the lists, what they read is in the
// other.
kernel void sp_fps_step(device const float* points [[buffer(0)]],  // the cloud's first row
                        device float* best [[buffer(1)]],          // [n]
                        device int* chosen [[buffer(2)]],          // [count] row in the cloud, -1 none
                        device float* part_best [[buffer(3)]],     // [2, groups]
                        device uint* part_rank [[buffer(4)]],      // [2, groups]
                        constant uint& n [[buffer(5)]],
                        constant uint& dim [[buffer(6)]],
                        constant uint& stay [[buffer(7)]],
                        constant uint& skip_near_origin [[buffer(8)]],
                        constant uint& slots [[buffer(9)]],
                        constant uint& chunk [[buffer(10)]],
                        constant uint& out [[buffer(11)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint groups [[threadgroups_per_grid]],
                        uint tid [[thread_index_in_threadgroup]],
                        uint threads [[threads_per_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint sg [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float sg_best[32];
    threadgroup uint sg_rank[32];
    threadgroup int before_this;

    const uint turns = slots == 0 ? 1u : (n + slots - 1) / slots;
    const uint last = min((group + 1) * chunk, n), read = (out - 1) % 2 * groups, write = out % 2 * groups;
    if (sg == 0) {
        const int picked =
            out == 1 ? chosen[0] : sp_picked(part_best + read, part_rank + read, groups, slots, turns, lane);
        if (lane == 0) before_this = picked;
        if (lane == 0 && group == 0 && out > 1) chosen[out - 1] = picked;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int now = before_this;
    SpPick pick;
    pick.best = -1.0f;
    pick.rank = SP_NO_RANK;
    for (uint i = group * chunk + tid; i < last && now >= 0; i += threads) {
        device const float* point = points + ulong(i) * dim;
        const float before = out == 1 ? sp_fresh(point, dim, skip_near_origin) : best[i];
        const bool gone = stay == 0 && int(i) == now;
        const float d = gone ? -1.0f : sp_nearer(before, point, points + ulong(uint(now)) * dim, dim);
        best[i] = d;
        if (d >= 0.0f) pick = sp_farther(pick, d, sp_rank(i, slots, turns));
    }
    pick = sp_simd_farthest(pick);
    if (lane == 0) {
        sg_best[sg] = pick.best;
        sg_rank[sg] = pick.rank;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sg == 0) {
        pick.best = lane < simdgroups ? sg_best[lane] : -1.0f;
        pick.rank = lane < simdgroups ? sg_rank[lane] : SP_NO_RANK;
        pick = sp_simd_farthest(pick);
        if (lane == 0) {
            part_best[write + group] = pick.best;
            part_rank[write + group] = pick.rank;
        }
    }
}

// One simdgroup: the farthest that the last step's groups left becomes sample `out`.
kernel void sp_fps_pick(device const float* part_best [[buffer(0)]],  // [2, parts]
                        device const uint* part_rank [[buffer(1)]],   // [2, parts]
                        device int* chosen [[buffer(2)]],
                        constant uint& parts [[buffer(3)]],
                        constant uint& slots [[buffer(4)]],
                        constant uint& n [[buffer(5)]],
                        constant uint& out [[buffer(6)]],
                        uint lane [[thread_index_in_simdgroup]]) {
    const uint turns = slots == 0 ? 1u : (n + slots - 1) / slots, read = out % 2 * parts;
    const int picked = sp_picked(part_best + read, part_rank + read, parts, slots, turns, lane);
    if (lane == 0) chosen[out] = picked;
}
