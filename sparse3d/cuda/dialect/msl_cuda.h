// The side of msl_cxx.h for NVIDIA GPUs: threadgroup = block, simdgroup = warp.
#pragma once
namespace metal {
MSL_INL uint msl_lane() {
    uint l;
    asm("mov.u32 %0, %%laneid;" : "=r"(l));
    return l;
}
MSL_INL void msl_sync() { __syncwarp(); }
MSL_INL void threadgroup_barrier(mem_flags f) {
    if (int(f) & 1) __threadfence_block();
    __syncthreads();
}
MSL_INL void simdgroup_barrier(mem_flags) { __syncwarp(); }
#define MSL_AT(T)                                                                                                 \
    MSL_INL T atomic_load_explicit(const volatile atomic<T>* p, memory_order) { return *(const volatile T*)p; }   \
    MSL_INL void atomic_store_explicit(volatile atomic<T>* p, T v, memory_order) { atomicExch((T*)p, v); }        \
    MSL_INL T atomic_exchange_explicit(volatile atomic<T>* p, T v, memory_order) { return atomicExch((T*)p, v); } \
    MSL_INL T atomic_fetch_add_explicit(volatile atomic<T>* p, T v, memory_order) { return atomicAdd((T*)p, v); }
#define MSL_ATI(T)                                                                                                     \
    MSL_AT(T)                                                                                                          \
    MSL_INL T atomic_fetch_min_explicit(volatile atomic<T>* p, T v, memory_order) { return atomicMin((T*)p, v); }      \
    MSL_INL T atomic_fetch_max_explicit(volatile atomic<T>* p, T v, memory_order) { return atomicMax((T*)p, v); }      \
    MSL_INL T atomic_fetch_or_explicit(volatile atomic<T>* p, T v, memory_order) { return atomicOr((T*)p, v); }        \
    MSL_INL bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, T* e, T v, memory_order, memory_order) { \
        T o = atomicCAS((T*)p, *e, v);                                                                                 \
        bool ok = o == *e;                                                                                             \
        *e = o;                                                                                                        \
        return ok;                                                                                                     \
    }
MSL_ATI(uint);
MSL_ATI(int);
MSL_AT(float);
template <class T>
MSL_INL T simd_sum(T v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
template <class T>
MSL_INL T simd_max(T v) {
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
template <class T>
MSL_INL T simd_min(T v) {
    for (int o = 16; o; o >>= 1) v = min(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
template <class T>
MSL_INL T simd_shuffle(T v, ushort l) {
    return __shfl_sync(~0u, v, l);
}
template <class T>
MSL_INL T simd_broadcast(T v, ushort l) {
    return __shfl_sync(~0u, v, l);
}
template <class T>
MSL_INL T simd_shuffle_xor(T v, ushort m) {
    return __shfl_xor_sync(~0u, v, m);
}
MSL_INL bool simd_any(bool b) { return __any_sync(~0u, b); }
MSL_INL bool simd_all(bool b) { return __all_sync(~0u, b); }
MSL_INL simd_vote simd_ballot(bool b) { return simd_vote(__ballot_sync(~0u, b)); }
template <class T>
MSL_INL T simd_prefix_exclusive_sum(T v) {
    T s = v;
    for (int o = 1; o < 32; o <<= 1) {
        T t = __shfl_up_sync(~0u, s, o);
        if (msl_lane() >= o) s += t;
    }
    return s - v;
}
template <class T>
MSL_INL T simd_prefix_inclusive_sum(T v) {
    return T(simd_prefix_exclusive_sum(v) + v);
}
// To `sum` a lane's two elements of a product, of which `own` are its two of each factor.
MSL_INL void msl_product(const float* own, uint row, uint column, float* sum) {
    for (uint k = 0; k < 8; ++k) {
        const float a = __shfl_sync(~0u, own[k & 1], msl_lane_of(row, k));
        const uint from = msl_lane_of(k, column);
        sum[0] += a * __shfl_sync(~0u, own[2], from);
        sum[1] += a * __shfl_sync(~0u, own[3], from);
    }
}
// A list argument; the kernel reads it where the parameters lie.
template <class T, int N>
struct msl_list {
    T v[N];
};
// Built-in input `w` (a position in _source.ATTRIBUTES) along axis `d`, for a block at `b` of `g` blocks.
MSL_INL uint msl_built_in(int w, int d, const uint* b, const uint* g) {
    const uint t[3] = {threadIdx.x, threadIdx.y, threadIdx.z}, n[3] = {blockDim.x, blockDim.y, blockDim.z};
    const uint lin = t[0] + n[0] * (t[1] + n[1] * t[2]);
    switch (w) {
        case 0:
            return b[d] * n[d] + t[d];
        case 1:
            return t[d];
        case 2:
            return b[d];
        case 3:
            return n[d];
        case 4:
            return g[d];
        case 6:
            return lin;
        case 7:
            return lin & 31;
        case 8:
            return lin >> 5;
        case 9:
            return 32;
        case 10:
            return (n[0] * n[1] * n[2] + 31) / 32;
        case 11:
            return n[d];
    }
    return 0;
}
MSL_INL uint msl_attr(int w, int d) {
    const uint b[3] = {blockIdx.x, 0, 0}, g[3] = {gridDim.x, 1, 1};
    return msl_built_in(w, d, b, g);
}
// Blocks are numbered along x alone; `x` and `y` of them make a row and a plane.
MSL_INL uint msl_attr(int w, int d, uint x, uint y) {
    const uint row = blockIdx.x / x;
    const uint b[3] = {blockIdx.x % x, row % y, row / y}, g[3] = {x, y, gridDim.x / (x * y)};
    return msl_built_in(w, d, b, g);
}
}  // namespace metal
