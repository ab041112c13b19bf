// MSL subset on top of clang's "C++ for OpenCL" front end. That front end has
// real address spaces, so `device`, `constant`, `threadgroup`, `thread` are
// checked much as Apple's (also clang) does, and the object code runs on x86.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_non_portable_kernel_param_types : enable
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define METAL_FUNC inline __attribute__((always_inline))
#define __METAL_VERSION__ 310
#define MSL_INL inline __attribute__((always_inline))
// For what reads the emulator's own memory, 32 lanes' worth: no hooks. Inlined it would get its caller's.
#define MSL_BARE __attribute__((noinline, disable_sanitizer_instrumentation))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define UINT_MAX 0xffffffffu
#define M_PI_F 3.14159274f

#if __clang_major__ >= 17
typedef __bf16 bfloat;  // arithmetic through float, results rounded to bfloat
#define MSL_HAS_BFLOAT 1
#endif
#define LONG_MAX 0x7fffffffffffffffl
#define MSL_VEC(S)                                      \
    typedef S S##2 __attribute__((ext_vector_type(2))); \
    typedef S S##3 __attribute__((ext_vector_type(3))); \
    typedef S S##4 __attribute__((ext_vector_type(4)));
MSL_VEC(char);
MSL_VEC(uchar);
MSL_VEC(short);
MSL_VEC(ushort);
MSL_VEC(int);
MSL_VEC(uint);
MSL_VEC(long);
MSL_VEC(ulong);
MSL_VEC(float);
MSL_VEC(half);

extern "C" {
void rt_fma();
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
ulong rt_at_u64(int, ulong, ulong);
int rt_cas_u32(ulong, uint*, uint);
}

namespace metal {
// ---- vectors: functional constructors come from function-like macros below ----
#define MSL_MAKE(S)                                                                 \
    MSL_INL S##2 make_##S##2(S a) { return (S##2)(a, a); }                          \
    MSL_INL S##3 make_##S##3(S a) { return (S##3)(a, a, a); }                       \
    MSL_INL S##4 make_##S##4(S a) { return (S##4)(a, a, a, a); }                    \
    MSL_INL S##2 make_##S##2(S a, S b) { return (S##2)(a, b); }                     \
    MSL_INL S##3 make_##S##3(S a, S b, S c) { return (S##3)(a, b, c); }             \
    MSL_INL S##3 make_##S##3(S##2 a, S b) { return (S##3)(a.x, a.y, b); }           \
    MSL_INL S##4 make_##S##4(S a, S b, S c, S d) { return (S##4)(a, b, c, d); }     \
    MSL_INL S##4 make_##S##4(S##3 a, S b) { return (S##4)(a.x, a.y, a.z, b); }      \
    MSL_INL S##4 make_##S##4(S##2 a, S##2 b) { return (S##4)(a.x, a.y, b.x, b.y); } \
    struct packed_##S##3 {                                                          \
        S x, y, z;                                                                  \
        packed_##S##3() = default;                                                  \
        packed_##S##3(S##3 v) : x(v.x), y(v.y), z(v.z) {}                           \
        packed_##S##3(S a, S b, S c) : x(a), y(b), z(c) {}                          \
        explicit packed_##S##3(S a) : x(a), y(a), z(a) {}                           \
        operator S##3() const { return (S##3)(x, y, z); }                           \
        S operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }           \
    };
MSL_MAKE(char);
MSL_MAKE(uchar);
MSL_MAKE(short);
MSL_MAKE(ushort);
MSL_MAKE(int);
MSL_MAKE(uint);
MSL_MAKE(long);
MSL_MAKE(ulong);
MSL_MAKE(float);
MSL_MAKE(half);
#define MSL_CVT(D, S)                                                             \
    MSL_INL D##2 make_##D##2(S##2 v) { return __builtin_convertvector(v, D##2); } \
    MSL_INL D##3 make_##D##3(S##3 v) { return (D##3)(D(v.x), D(v.y), D(v.z)); }   \
    MSL_INL D##4 make_##D##4(S##4 v) { return __builtin_convertvector(v, D##4); }
MSL_CVT(float, int);
MSL_CVT(float, uint);
MSL_CVT(float, half);
MSL_CVT(float, float);
MSL_CVT(int, float);
MSL_CVT(int, uint);
MSL_CVT(int, int);
MSL_CVT(uint, int);
MSL_CVT(uint, float);
MSL_CVT(uint, uint);
MSL_CVT(half, float);
MSL_CVT(half, half);
MSL_CVT(long, int);
MSL_CVT(int, long);
MSL_CVT(ulong, uint);

// ---- math ----
template <class T>
MSL_INL T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
MSL_INL T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
MSL_INL T clamp(T x, T lo, T hi) {
    return min(max(x, lo), hi);
}
template <class T>
MSL_INL T abs(T a) {
    return a < T(0) ? T(-a) : a;
}
template <class T>
MSL_INL T select(T a, T b, bool c) {
    return c ? b : a;
}
#define MSL_F1(N, B)                          \
    MSL_INL float N(float x) { return B(x); } \
    MSL_INL half N(half x) { return (half)B((float)x); }
MSL_F1(sqrt, __builtin_sqrtf);
MSL_F1(exp, __builtin_expf);
MSL_F1(exp2, __builtin_exp2f);
MSL_F1(log, __builtin_logf);
MSL_F1(log2, __builtin_log2f);
MSL_F1(floor, __builtin_floorf);
MSL_F1(ceil, __builtin_ceilf);
MSL_F1(round, __builtin_roundf);
MSL_F1(rint, __builtin_rintf);
MSL_F1(trunc, __builtin_truncf);
MSL_F1(fabs, __builtin_fabsf);
MSL_F1(sin, __builtin_sinf);
MSL_F1(cos, __builtin_cosf);
MSL_F1(tanh, __builtin_tanhf);
MSL_INL float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
MSL_INL float pow(float a, float b) { return __builtin_powf(a, b); }
MSL_INL float fma(float a, float b, float c) {
    rt_fma();
    return __builtin_fmaf(a, b, c);
}
MSL_INL half fma(half a, half b, half c) { return (half)__builtin_fmaf((float)a, (float)b, (float)c); }
MSL_INL bool isnan(float x) { return x != x; }
MSL_INL bool isfinite(float x) { return __builtin_isfinite(x); }
MSL_INL int2 isfinite(float2 v) { return (int2)(isfinite(v.x), isfinite(v.y)); }
MSL_INL int3 isfinite(float3 v) { return (int3)(isfinite(v.x), isfinite(v.y), isfinite(v.z)); }
MSL_INL int4 isfinite(float4 v) { return (int4)(isfinite(v.x), isfinite(v.y), isfinite(v.z), isfinite(v.w)); }
MSL_INL bool all(int2 v) { return v.x && v.y; }
MSL_INL bool all(int3 v) { return v.x && v.y && v.z; }
MSL_INL bool all(int4 v) { return v.x && v.y && v.z && v.w; }
MSL_INL bool any(int2 v) { return v.x || v.y; }
MSL_INL bool any(int3 v) { return v.x || v.y || v.z; }
MSL_INL bool any(int4 v) { return v.x || v.y || v.z || v.w; }
#define MSL_FV(N)                                                           \
    MSL_INL float2 N(float2 v) { return (float2)(N(v.x), N(v.y)); }         \
    MSL_INL float3 N(float3 v) { return (float3)(N(v.x), N(v.y), N(v.z)); } \
    MSL_INL float4 N(float4 v) { return (float4)(N(v.x), N(v.y), N(v.z), N(v.w)); }
MSL_FV(floor);
MSL_FV(ceil);
MSL_FV(exp);
MSL_FV(sqrt);
MSL_FV(rint);
MSL_FV(round);
MSL_FV(fabs);
MSL_INL float length(float3 a) { return __builtin_sqrtf(a.x * a.x + a.y * a.y + a.z * a.z); }
MSL_INL bool isinf(float x) { return __builtin_isinf(x); }
MSL_INL uint popcount(uint x) { return __builtin_popcount(x); }
MSL_INL uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
MSL_INL uint ctz(uint x) { return x ? __builtin_ctz(x) : 32; }
MSL_INL float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
MSL_INL float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
MSL_INL half dot(half4 a, half4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
MSL_INL float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class D, class S>
MSL_INL D as_type(S s) {
    static_assert(sizeof(D) == sizeof(S), "as_type");
    return __builtin_bit_cast(D, s);
}
template <class T>
struct numeric_limits;

namespace precise {
using metal::cos;
using metal::exp;
using metal::exp2;
using metal::log;
using metal::log2;
using metal::pow;
using metal::rsqrt;
using metal::sin;
using metal::sqrt;
using metal::tanh;
}  // namespace precise
namespace fast {
using namespace precise;
}
// ---- atomics: only what every Apple7 GPU has; anything else does not compile ----
template <class T>
struct atomic {
    T v;
};
enum memory_order { memory_order_relaxed = 0 };
#define MSL_ATOMIC(AS, T, F)                                                                                       \
    MSL_INL T atomic_load_explicit(const volatile AS atomic<T>* p, memory_order) { return F(0, (ulong)p, T(0)); }  \
    MSL_INL void atomic_store_explicit(volatile AS atomic<T>* p, T v, memory_order) { F(1, (ulong)p, v); }         \
    MSL_INL T atomic_exchange_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(1, (ulong)p, v); }  \
    MSL_INL T atomic_fetch_add_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(2, (ulong)p, v); } \
    MSL_INL T atomic_fetch_sub_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(3, (ulong)p, v); }
#define MSL_ATOMIC_INT(AS, T, F)                                                                                   \
    MSL_ATOMIC(AS, T, F)                                                                                           \
    MSL_INL T atomic_fetch_min_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(4, (ulong)p, v); } \
    MSL_INL T atomic_fetch_max_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(5, (ulong)p, v); } \
    MSL_INL T atomic_fetch_and_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(6, (ulong)p, v); } \
    MSL_INL T atomic_fetch_or_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(7, (ulong)p, v); }  \
    MSL_INL T atomic_fetch_xor_explicit(volatile AS atomic<T>* p, T v, memory_order) { return F(8, (ulong)p, v); } \
    MSL_INL bool atomic_compare_exchange_weak_explicit(volatile AS atomic<T>* p, thread T* e, T v, memory_order,   \
                                                       memory_order) {                                             \
        return rt_cas_u32((ulong)p, (uint*)e, (uint)v) != 0;                                                       \
    }
MSL_ATOMIC_INT(device, uint, rt_at_u32);
MSL_ATOMIC_INT(threadgroup, uint, rt_at_u32);
MSL_ATOMIC_INT(device, int, rt_at_i32);
MSL_ATOMIC_INT(threadgroup, int, rt_at_i32);
MSL_ATOMIC(device, float, rt_at_f32);  // Metal 3, device memory only
MSL_INL void atomic_min_explicit(volatile device atomic<ulong>* p, ulong v, memory_order) {
    rt_at_u64(4, (ulong)p, v);
}  // Apple8+
MSL_INL void atomic_max_explicit(volatile device atomic<ulong>* p, ulong v, memory_order) { rt_at_u64(5, (ulong)p, v); }

// ---- barriers ----
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_INL mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
MSL_INL void threadgroup_barrier(mem_flags f) { rt_barrier(int(f)); }
MSL_INL void simdgroup_barrier(mem_flags f) { rt_simd_barrier(int(f)); }

// ---- simdgroup functions ----
template <class T>
struct msl_all {
    const uchar* p;
    uint mask;
    MSL_INL T at(uint l) const { return *(const T*)(p + 32 * l); }
    MSL_INL bool on(uint l) const { return mask >> l & 1; }
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
    auto a = msl_share(5, v);
    return a.at(l & 31);
}
template <class T>
MSL_BARE T simd_broadcast_first(T v) {
    auto a = msl_share(6, v);
    return a.at(__builtin_ctz(a.mask));
}
template <class T>
MSL_BARE T simd_shuffle(T v, ushort l) {
    auto a = msl_share(7, v);
    return a.at(l & 31);
}
template <class T>
MSL_BARE T simd_shuffle_xor(T v, ushort m) {
    auto a = msl_share(8, v);
    return a.at((rt_lane() ^ m) & 31);
}
template <class T>
MSL_BARE T simd_shuffle_down(T v, ushort d) {
    auto a = msl_share(9, v);
    uint l = rt_lane() + d;
    return l < 32 ? a.at(l) : v;
}
template <class T>
MSL_BARE T simd_shuffle_up(T v, ushort d) {
    auto a = msl_share(10, v);
    uint l = rt_lane();
    return l >= d ? a.at(l - d) : v;
}
MSL_BARE bool simd_any(bool b) {
    auto a = msl_share(11, uint(b));
    uint r = 0;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l)) r |= a.at(l);
    return r != 0;
}
MSL_INL bool simd_all(bool b) { return !simd_any(!b); }
class simd_vote {
    ulong m;

   public:
    typedef ulong vote_t;
    explicit simd_vote(ulong x) : m(x) {}
    explicit operator ulong() const { return m; }
    bool any() const { return m != 0; }
};
MSL_BARE simd_vote simd_ballot(bool b) {
    auto a = msl_share(12, uint(b));
    ulong r = 0;
    for (uint l = 0; l < 32; ++l)
        if (a.on(l) && a.at(l)) r |= 1ul << l;
    return simd_vote(r);
}

// ---- 8x8 simdgroup matrices: two elements per lane, in the layout MLX relies on ----
MSL_INL uint msl_row() {
    uint l = rt_lane();
    return (l >> 4) * 4 + (l >> 1 & 3);
}
MSL_INL uint msl_col() {
    uint l = rt_lane();
    return (l >> 3 & 1) * 4 + (l & 1) * 2;
}
// A lane's two elements, read only.
template <class T>
struct msl_elements {
    T e[2];
    T operator[](uint i) const { return e[i]; }
};
template <class T, int R, int C>
struct simdgroup_matrix {
    T e[2];
    msl_elements<T> thread_elements() const {
        msl_elements<T> v;
        v.e[0] = e[0];
        v.e[1] = e[1];
        return v;
    }
    simdgroup_matrix() {}
    explicit simdgroup_matrix(T v) {
        for (uint i = 0; i < 2; ++i) e[i] = msl_row() == msl_col() + i ? v : T(0);
    }  // a diagonal matrix, as in Metal
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <class T, int R, int C>
MSL_INL simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, R, C> m;
    m.e[0] = v;
    m.e[1] = v;
    return m;
}
#define MSL_MAT(AS)                                                                                \
    template <class T>                                                                             \
    MSL_INL void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& m, const AS T* p, ulong ld = 8,  \
                                ulong2 o = (ulong2)(0, 0), bool tr = false) {                      \
        msl_share(20, 0u);                                                                         \
        for (uint i = 0; i < 2; ++i) {                                                             \
            ulong r = msl_row() + o.y, c = msl_col() + i + o.x;                                    \
            m.e[i] = tr ? p[c * ld + r] : p[r * ld + c];                                           \
        }                                                                                          \
    }                                                                                              \
    template <class T>                                                                             \
    MSL_INL void simdgroup_store(thread const simdgroup_matrix<T, 8, 8>& m, AS T* p, ulong ld = 8, \
                                 ulong2 o = (ulong2)(0, 0), bool tr = false) {                     \
        msl_share(21, 0u);                                                                         \
        for (uint i = 0; i < 2; ++i) {                                                             \
            ulong r = msl_row() + o.y, c = msl_col() + i + o.x;                                    \
            if (tr)                                                                                \
                p[c * ld + r] = m.e[i];                                                            \
            else                                                                                   \
                p[r * ld + c] = m.e[i];                                                            \
        }                                                                                          \
    }
MSL_MAT(device);
MSL_MAT(threadgroup);
template <class D, class A, class B, class C>
MSL_INL void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                           thread const simdgroup_matrix<A, 8, 8>& a,
                                           thread const simdgroup_matrix<B, 8, 8>& b,
                                           thread const simdgroup_matrix<C, 8, 8>& c) {
    const float own[4] = {(float)a.e[0], (float)a.e[1], (float)b.e[0], (float)b.e[1]};
    float sum[2] = {(float)c.e[0], (float)c.e[1]};
    rt_product(own, sum);
    d.e[0] = (D)sum[0];
    d.e[1] = (D)sum[1];
}
template <class D, class A, class B>
MSL_INL void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d,
                                thread const simdgroup_matrix<A, 8, 8>& a,
                                thread const simdgroup_matrix<B, 8, 8>& b) {
    simdgroup_matrix<D, 8, 8> z;
    z.e[0] = D(0);
    z.e[1] = D(0);
    simdgroup_multiply_accumulate(d, a, b, z);
}
}  // namespace metal
#define atomic_int ::metal::atomic<int>
#define atomic_uint ::metal::atomic<uint>
#define atomic_float ::metal::atomic<float>
#define atomic_ulong ::metal::atomic<ulong>

// OpenCL has no functional vector constructors: these macros stand for them.
#define float2(...) (::metal::make_float2(__VA_ARGS__))
#define float3(...) (::metal::make_float3(__VA_ARGS__))
#define float4(...) (::metal::make_float4(__VA_ARGS__))
#define half2(...) (::metal::make_half2(__VA_ARGS__))
#define half3(...) (::metal::make_half3(__VA_ARGS__))
#define half4(...) (::metal::make_half4(__VA_ARGS__))
#define int2(...) (::metal::make_int2(__VA_ARGS__))
#define int3(...) (::metal::make_int3(__VA_ARGS__))
#define int4(...) (::metal::make_int4(__VA_ARGS__))
#define uint2(...) (::metal::make_uint2(__VA_ARGS__))
#define uint3(...) (::metal::make_uint3(__VA_ARGS__))
#define uint4(...) (::metal::make_uint4(__VA_ARGS__))
#define ulong2(...) (::metal::make_ulong2(__VA_ARGS__))
// words that are keywords of OpenCL but plain identifiers in MSL
#define local msl_id_local
#define global msl_id_global
#define generic msl_id_generic
#define read_only msl_id_read_only
#define pipe msl_id_pipe
struct msl_end_of_shim;
