// MSL subset for compilers without address spaces: g++ (the emulator of the tests) and NVRTC or nvcc
// (NVIDIA GPUs; includes nothing there). _translate.py has rewritten `threadgroup` variables to
// MSL_SHARED, program-scope constants to MSL_CONST and removed [[attributes]].
#pragma once
#ifdef __CUDACC__
#define MSL_COUNT_FMA()
#define MSL_COPY ::memcpy
#define MSL_INFINITY __int_as_float(0x7f800000)
#define MSL_POPCOUNT __popc
#define MSL_CLZ __clz
#define MSL_DEV __device__
#define MSL_SHARED __shared__
#define MSL_CONST static __device__ const
#define kernel static __device__
#define inline __device__ __inline__
#else
#include <cstdint>
#include <cstddef>
#include <cmath>
extern "C" void rt_fma();
#define MSL_COUNT_FMA rt_fma
#define MSL_COPY __builtin_memcpy
#define MSL_INFINITY __builtin_huge_valf()
#define MSL_POPCOUNT __builtin_popcount
#define MSL_CLZ __builtin_clz
#define MSL_DEV
#define MSL_SHARED static
#define MSL_CONST static const
#define kernel static
#endif
#define MSL_INL MSL_DEV __attribute__((always_inline)) static __inline__
#define METAL_FUNC MSL_INL
#define __METAL_VERSION__ 310

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
// half with Metal's promotion rules (half op half stays half). Sums, products and quotients of two halves are exact
// enough in float to be rounded twice without harm.
#ifdef __CUDACC__
MSL_INL ushort msl_to_half(float f) {
    ushort h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
MSL_INL float msl_from_half(ushort h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
#else  // _Float16 needs gcc >= 12 and SSE2 on x86
MSL_INL ushort msl_to_half(float f) {
    _Float16 v = (_Float16)f;
    ushort h;
    MSL_COPY(&h, &v, 2);
    return h;
}
MSL_INL float msl_from_half(ushort h) {
    _Float16 v;
    MSL_COPY(&v, &h, 2);
    return (float)v;
}
#endif
struct half {
    ushort b;
    half() = default;
    template <class S>
    MSL_DEV half(S s) : b(msl_to_half((float)s)) {}
    MSL_DEV operator float() const { return msl_from_half(b); }
};
#define MSL_HALF(O) \
    MSL_INL half operator O(half a, half b) { return half(float(a) O float(b)); }
MSL_HALF(+);
MSL_HALF(-);
MSL_HALF(*);
MSL_HALF(/);
#undef MSL_HALF
MSL_INL half& operator+=(half& a, half b) {
    a = a + b;
    return a;
}
// bfloat: stored as 16 bits, arithmetic in float, rounded to nearest even
struct bfloat {
    ushort b;
    bfloat() = default;
    MSL_DEV operator float() const {
        uint u = uint(b) << 16;
        float f;
        MSL_COPY(&f, &u, 4);
        return f;
    }
    template <class S>
    MSL_DEV bfloat(S s) {
        float f = (float)s;
        uint u;
        MSL_COPY(&u, &f, 4);
        b = f != f ? 0x7fc0 : ushort((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
};
#undef INFINITY
#undef fma
#define INFINITY MSL_INFINITY
#define FLT_MAX 3.402823466e+38f
#undef INT_MAX
#undef INT_MIN
#undef UINT_MAX
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define UINT_MAX 0xffffffffu

namespace msl_v {
template <class T, int N>
struct vec;
template <class T>
struct vec<T, 2> {
    T x, y;
    vec() = default;
    MSL_DEV explicit vec(T a) : x(a), y(a) {}
    MSL_DEV vec(T a, T b) : x(a), y(b) {}
    template <class U>
    MSL_DEV explicit vec(const vec<U, 2>& v) : x(T(v.x)), y(T(v.y)) {}
    MSL_DEV T& operator[](int i) { return (&x)[i]; }
    MSL_DEV T operator[](int i) const { return (&x)[i]; }
};
template <class T>
struct packed3 {
    T x, y, z;
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    vec() = default;
    MSL_DEV explicit vec(T a) : x(a), y(a), z(a) {}
    MSL_DEV vec(T a, T b, T c) : x(a), y(b), z(c) {}
    template <class U>
    MSL_DEV explicit vec(const vec<U, 3>& v) : x(T(v.x)), y(T(v.y)), z(T(v.z)) {}
    MSL_DEV vec(const packed3<T>& p) : x(p.x), y(p.y), z(p.z) {}
    MSL_DEV T& operator[](int i) { return (&x)[i]; }
    MSL_DEV T operator[](int i) const { return (&x)[i]; }
};
template <class T>
struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    vec() = default;
    MSL_DEV explicit vec(T a) : x(a), y(a), z(a), w(a) {}
    MSL_DEV vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    MSL_DEV vec(const vec<T, 3>& v, T d) : x(v.x), y(v.y), z(v.z), w(d) {}
    template <class U>
    MSL_DEV explicit vec(const vec<U, 4>& v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
    MSL_DEV T& operator[](int i) { return (&x)[i]; }
    MSL_DEV T operator[](int i) const { return (&x)[i]; }
};
#define MSL_OP(O)                                                     \
    template <class T>                                                \
    MSL_INL vec<T, 2> operator O(vec<T, 2> a, vec<T, 2> b) {          \
        return vec<T, 2>(a.x O b.x, a.y O b.y);                       \
    }                                                                 \
    template <class T>                                                \
    MSL_INL vec<T, 3> operator O(vec<T, 3> a, vec<T, 3> b) {          \
        return vec<T, 3>(a.x O b.x, a.y O b.y, a.z O b.z);            \
    }                                                                 \
    template <class T>                                                \
    MSL_INL vec<T, 4> operator O(vec<T, 4> a, vec<T, 4> b) {          \
        return vec<T, 4>(a.x O b.x, a.y O b.y, a.z O b.z, a.w O b.w); \
    }                                                                 \
    template <class T>                                                \
    MSL_INL vec<T, 2> operator O(vec<T, 2> a, T b) {                  \
        return a O vec<T, 2>(b);                                      \
    }                                                                 \
    template <class T>                                                \
    MSL_INL vec<T, 3> operator O(vec<T, 3> a, T b) {                  \
        return a O vec<T, 3>(b);                                      \
    }                                                                 \
    template <class T>                                                \
    MSL_INL vec<T, 4> operator O(vec<T, 4> a, T b) {                  \
        return a O vec<T, 4>(b);                                      \
    }
MSL_OP(+);
MSL_OP(-);
MSL_OP(*);
MSL_OP(/);
}  // namespace msl_v
#define MSL_VT(S)                      \
    typedef msl_v::vec<S, 2> m_##S##2; \
    typedef msl_v::vec<S, 3> m_##S##3; \
    typedef msl_v::vec<S, 4> m_##S##4; \
    typedef msl_v::packed3<S> packed_##S##3;
MSL_VT(char);
MSL_VT(uchar);
MSL_VT(short);
MSL_VT(ushort);
MSL_VT(int);
MSL_VT(uint);
MSL_VT(long);
MSL_VT(ulong);
MSL_VT(float);
MSL_VT(half);
// CUDA has global vector types of the same names, without constructors
#define float2 m_float2
#define float3 m_float3
#define float4 m_float4
#define half2 m_half2
#define half3 m_half3
#define half4 m_half4
#define int2 m_int2
#define int3 m_int3
#define int4 m_int4
#define uint2 m_uint2
#define uint3 m_uint3
#define uint4 m_uint4
#define long2 m_long2
#define long4 m_long4
#define ulong2 m_ulong2
#define ulong4 m_ulong4
#define uchar4 m_uchar4
#define ushort4 m_ushort4
#define ushort2 m_ushort2

namespace metal {
MSL_INL m_uint2 msl_mk2(uint a, uint b) { return m_uint2(a, b); }
MSL_INL m_uint3 msl_mk3(uint a, uint b, uint c) { return m_uint3(a, b, c); }
template <class T>
MSL_INL T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
MSL_INL T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
MSL_INL T clamp(T x, T l, T h) {
    return min(max(x, l), h);
}
template <class T>
MSL_INL T select(T a, T b, bool c) {
    return c ? b : a;
}
MSL_INL float fma(float a, float b, float c) {
    MSL_COUNT_FMA();
    return ::fmaf(a, b, c);
}
template <class T>
MSL_INL T abs(T a) {
    return a < T(0) ? T(-a) : a;
}
MSL_INL float tanh(float a) { return ::tanhf(a); }
MSL_INL float fabs(float a) { return ::fabsf(a); }
MSL_INL float log(float a) { return ::logf(a); }
MSL_INL float rint(float a) { return ::rintf(a); }
MSL_INL bool isnan(float a) { return a != a; }
MSL_INL float sqrt(float a) { return ::sqrtf(a); }
MSL_INL float exp(float a) { return ::expf(a); }
MSL_INL float floor(float a) { return ::floorf(a); }
template <class D, class S>
MSL_INL D as_type(S s) {
    D d;
    static_assert(sizeof(D) == sizeof(S), "as_type");
    MSL_COPY(&d, &s, sizeof d);
    return d;
}
template <class T>
struct atomic {
    T v;
};
enum memory_order { memory_order_relaxed = 0 };
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
MSL_INL mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
class simd_vote {
    ulong m;

   public:
    typedef ulong vote_t;
    MSL_DEV explicit simd_vote(ulong x) : m(x) {}
    MSL_DEV explicit operator ulong() const { return m; }
    MSL_DEV bool any() const { return m != 0; }
};
MSL_INL uint popcount(uint x) { return MSL_POPCOUNT(x); }
MSL_INL uint clz(uint x) { return x ? MSL_CLZ(x) : 32u; }
MSL_INL uint ctz(uint x) { return x ? 31u - MSL_CLZ(x & (0u - x)) : 32u; }
MSL_INL uint msl_lane_of(uint r, uint c) { return (r >> 2) << 4 | (c >> 2) << 3 | (r & 3) << 1 | (c >> 1 & 1); }
// A lane's two elements, read only.
template <class T>
struct msl_elements {
    T e[2];
    MSL_DEV T operator[](uint i) const { return e[i]; }
};
template <class T, int R, int C>
struct simdgroup_matrix {
    T e[2];
    MSL_DEV msl_elements<T> thread_elements() const {
        msl_elements<T> v;
        v.e[0] = e[0];
        v.e[1] = e[1];
        return v;
    }
};
template <class T, int R, int C>
MSL_INL simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, R, C> m;
    m.e[0] = v;
    m.e[1] = v;
    return m;
}
}  // namespace metal

#ifdef __CUDACC__
#include "msl_cuda.h"
#else
#include "msl_host.h"
#endif
#define atomic_int ::metal::atomic<int>
#define atomic_uint ::metal::atomic<uint>
#define atomic_float ::metal::atomic<float>
namespace metal {
MSL_INL uint msl_row() {
    uint l = msl_lane();
    return (l >> 4) * 4 + (l >> 1 & 3);
}
MSL_INL uint msl_col() {
    uint l = msl_lane();
    return (l >> 3 & 1) * 4 + (l & 1) * 2;
}
template <class T>
MSL_INL void simdgroup_load(simdgroup_matrix<T, 8, 8>& m,
                            const T* p,
                            ulong ld = 8,
                            m_ulong2 o = m_ulong2(0, 0),
                            bool tr = false) {
    msl_sync();
    for (uint i = 0; i < 2; ++i) {
        ulong r = msl_row() + o.y, c = msl_col() + i + o.x;
        m.e[i] = tr ? p[c * ld + r] : p[r * ld + c];
    }
}
template <class T>
MSL_INL void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m,
                             T* p,
                             ulong ld = 8,
                             m_ulong2 o = m_ulong2(0, 0),
                             bool tr = false) {
    msl_sync();
    for (uint i = 0; i < 2; ++i) {
        ulong r = msl_row() + o.y, c = msl_col() + i + o.x;
        if (tr)
            p[c * ld + r] = m.e[i];
        else
            p[r * ld + c] = m.e[i];
    }
}
template <class D, class A, class B, class C>
MSL_INL void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                           const simdgroup_matrix<A, 8, 8>& a,
                                           const simdgroup_matrix<B, 8, 8>& b,
                                           const simdgroup_matrix<C, 8, 8>& c) {
    const float own[4] = {float(a.e[0]), float(a.e[1]), float(b.e[0]), float(b.e[1])};
    float sum[2] = {float(c.e[0]), float(c.e[1])};
    msl_product(own, msl_row(), msl_col(), sum);
    d.e[0] = D(sum[0]);
    d.e[1] = D(sum[1]);
}
}  // namespace metal
