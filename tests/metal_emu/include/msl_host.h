// g++ side of msl_cxx.h: everything goes to the fiber runtime.
#pragma once
extern "C" {
void* rt_arg(int);
uint rt_attr(int, int);
void rt_barrier(int);
void rt_simd_barrier(int);
void* rt_simd(uint, const void*, uint, uint*);
void rt_product(const float*, float*);
uint rt_lane();
uint rt_at_u32(int, ulong, uint);
int rt_at_i32(int, ulong, int);
float rt_at_f32(int, ulong, float);
int rt_cas_u32(ulong, uint*, uint);
}
// For what reads the emulator's own memory, 32 lanes' worth: no hooks. Inlined it would get its caller's.
#define MSL_BARE __attribute__((noinline, no_sanitize_thread)) static
namespace metal {
#define MSL_AT(T, F)                                                                                           \
    MSL_INL T atomic_load_explicit(const volatile atomic<T>* p, memory_order) { return F(0, (ulong)p, T(0)); } \
    MSL_INL void atomic_store_explicit(volatile atomic<T>* p, T v, memory_order) { F(1, (ulong)p, v); }        \
    MSL_INL T atomic_exchange_explicit(volatile atomic<T>* p, T v, memory_order) { return F(1, (ulong)p, v); } \
    MSL_INL T atomic_fetch_add_explicit(volatile atomic<T>* p, T v, memory_order) { return F(2, (ulong)p, v); }
#define MSL_ATI(T, F)                                                                                                  \
    MSL_AT(T, F)                                                                                                       \
    MSL_INL T atomic_fetch_min_explicit(volatile atomic<T>* p, T v, memory_order) { return F(4, (ulong)p, v); }        \
    MSL_INL T atomic_fetch_max_explicit(volatile atomic<T>* p, T v, memory_order) { return F(5, (ulong)p, v); }        \
    MSL_INL T atomic_fetch_or_explicit(volatile atomic<T>* p, T v, memory_order) { return F(7, (ulong)p, v); }         \
    MSL_INL bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, T* e, T v, memory_order, memory_order) { \
        return rt_cas_u32((ulong)p, (uint*)e, (uint)v) != 0;                                                           \
    }
MSL_ATI(uint, rt_at_u32);
MSL_ATI(int, rt_at_i32);
MSL_AT(float, rt_at_f32);
MSL_INL void threadgroup_barrier(mem_flags f) { rt_barrier(int(f)); }
MSL_INL void simdgroup_barrier(mem_flags f) { rt_simd_barrier(int(f)); }
MSL_INL uint msl_lane() { return rt_lane(); }
MSL_INL void msl_sync() {
    uint m, z = 0;
    rt_simd(20, &z, 4, &m);
}
template <class T>
struct msl_all {
    const uchar* p;
    uint mask;
    __attribute__((always_inline)) T at(uint l) const { return *(const T*)(p + 32 * l); }
    __attribute__((always_inline)) bool on(uint l) const { return mask >> l & 1; }
};
template <class T>
MSL_INL msl_all<T> msl_share(uint op, T v) {
    msl_all<T> a;
    a.p = (const uchar*)rt_simd(op, &v, sizeof(T), &a.mask);
    return a;
}
template <class T>
MSL_BARE T simd_sum(T v) {
    auto a = msl_share(1, v);
    T r = T(0);
    for (uint l = 0; l < 32; ++l)
        if (a.on(l)) r = T(r + a.at(l));
    return r;
}
template <class T>
MSL_BARE T simd_max(T v) {
    auto a = msl_share(2, v);
    T r = v;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l)) r = max(r, a.at(l));
    return r;
}
template <class T>
MSL_BARE T simd_min(T v) {
    auto a = msl_share(3, v);
    T r = v;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l)) r = min(r, a.at(l));
    return r;
}
template <class T>
MSL_BARE T simd_prefix_exclusive_sum(T v) {
    auto a = msl_share(4, v);
    T r = T(0);
    for (uint l = 0; l < rt_lane(); ++l)
        if (a.on(l)) r = T(r + a.at(l));
    return r;
}
template <class T>
MSL_INL T simd_prefix_inclusive_sum(T v) {
    return T(simd_prefix_exclusive_sum(v) + v);
}
template <class T>
MSL_BARE T simd_broadcast(T v, ushort l) {
    return msl_share(5, v).at(l & 31);
}
template <class T>
MSL_BARE T simd_shuffle_xor(T v, ushort m) {
    return msl_share(8, v).at((rt_lane() ^ m) & 31);
}
MSL_BARE bool simd_any(bool b) {
    auto a = msl_share(11, uint(b));
    uint r = 0;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l)) r |= a.at(l);
    return r != 0;
}
MSL_INL bool simd_all(bool b) { return !simd_any(!b); }
MSL_BARE simd_vote simd_ballot(bool b) {
    auto a = msl_share(12, uint(b));
    ulong r = 0;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l) && a.at(l)) r |= 1ul << l;
    return simd_vote(r);
}
template <class T>
MSL_BARE T simd_shuffle(T v, ushort l) {
    return msl_share(7, v).at(l & 31);
}
MSL_INL void msl_product(const float* own, uint, uint, float* sum) { rt_product(own, sum); }
}  // namespace metal
