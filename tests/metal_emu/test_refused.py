"""Sources that Apple's compiler or `compile_shader` would refuse must be refused here too."""

import pytest

from metal_emu import MetalError, compile_shader, fronts, lint

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
OUT = "device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]"


def kernel(body, before="", parameters=OUT):
    return f"{HEAD}{before}\nkernel void k({parameters}) {{ {body} }}\n"


FULL = """threadgroup float t[{}]; t[i] = 0.0f; threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = t[i ^ 1u];"""

CLANG = {
    "threadgroup pointer as device pointer": (
        kernel(
            "threadgroup float t[4]; out[i] = sp_first(t);",
            "inline float sp_first(device const float* p) { return p[0]; }",
        ),
        "no matching function",
    ),
    "pointer without address space": (
        kernel("out[i] = sp_first(out);", "inline float sp_first(const float* p) { return p[0]; }"),
        "without an address space",
    ),
    "reference without address space": (
        kernel("sp_set(out[i]);", "inline void sp_set(float& x) { x = 1.0f; }"),
        "without an address space",
    ),
    "const lost": (
        kernel(
            "device float* q = p; q[i] = 0.0f;",
            parameters=OUT.replace("uint i", "device const float* p [[buffer(1)]], uint i"),
        ),
        "cannot initialize",
    ),
    "64-bit compare and exchange": (
        kernel(
            "ulong e = 0; atomic_compare_exchange_weak_explicit(a, &e, 1ul, "
            "memory_order_relaxed, memory_order_relaxed);",
            parameters=OUT.replace("uint i", "device atomic_ulong* a [[buffer(1)]], uint i"),
        ),
        "no matching function",
    ),
    "float atomic in threadgroup memory": (
        kernel(
            "threadgroup atomic_float t; atomic_fetch_add_explicit(&t, 1.0f, memory_order_relaxed);"
        ),
        "no matching function",
    ),
    "float atomic minimum": (
        kernel(
            "atomic_fetch_min_explicit(a, 1.0f, memory_order_relaxed);",
            parameters=OUT.replace("uint i", "device atomic_float* a [[buffer(1)]], uint i"),
        ),
        "no matching function",
    ),
    "plain write to an atomic": (
        kernel(
            "a[i] = 1u;",
            parameters=OUT.replace("uint i", "device atomic_uint* a [[buffer(1)]], uint i"),
        ),
        "no viable overloaded|no matching",
    ),
    "mutable global": (kernel("out[i] = counter;", "int counter;"), "must be constant"),
    "static local": (
        kernel("static int c; c++; out[i] = c;"),
        "static local|address space|not allowed",
    ),
    "recursion": (
        kernel(
            "out[i] = sp_f(3);", "inline int sp_f(int n) { return n <= 1 ? 1 : n * sp_f(n - 1); }"
        ),
        "recursion",
    ),
    "threadgroup variable with initialiser": (
        kernel("threadgroup float t = 1.0f; out[i] = t;"),
        "initializ",
    ),
    "min of int and uint": (kernel("out[i] = min(int(i), i);"), "no matching function"),
    "implicit vector conversion": (
        kernel("int4 v = float4(1.0f); out[i] = v.x;"),
        "cannot initialize",
    ),
    "too much threadgroup memory": (kernel(FULL.format(8193)), "32768"),
}
LINT = {
    "double": (kernel("double d = 1.0; out[i] = float(d);"), "no double"),
    "not ASCII": (kernel("out[i] = 0.0f; // caf\u00e9"), "not ASCII"),
    "if constexpr": (kernel("if constexpr (true) out[i] = 0.0f;"), "C\\+\\+17"),
    "lambda": (kernel("auto f = [](int x) { return x; }; out[i] = f(1);"), "lambdas"),
    "structured binding": (
        kernel("auto [a, b] = int2(1, 2); out[i] = a + b;"),
        "structured bindings",
    ),
    "std": (kernel("out[i] = std::max(1.0f, 2.0f);"), "no C\\+\\+ standard library"),
    "function constant": (
        kernel("out[i] = c;", "constant int c [[function_constant(0)]];"),
        "function constants",
    ),
    "own include": (kernel("out[i] = 0.0f;", '#include "mine.h"'), "system headers"),
    "strong exchange": (kernel("atomic_compare_exchange_strong_explicit(out);"), "weak form only"),
    "acquire": (kernel("atomic_load_explicit(out, memory_order_acquire);"), "relaxed only"),
    "printf": (kernel('printf("x");'), "no C library"),
    "host_name": (
        HEAD + 'template [[host_name("a")]] kernel void f<int>();',
        "specialise by macros",
    ),
    "buffer gap": (
        kernel("out[i] = 0.0f;", parameters=OUT.replace("buffer(0)", "buffer(1)")),
        "0..n-1",
    ),
    "int grid index": (
        kernel("out[i] = 0.0f;", parameters=OUT.replace("uint i", "int i")),
        "uint or ushort",
    ),
    "mixed ranks": (
        kernel("out[i] = 0.0f;", parameters=OUT + ", uint2 g [[threadgroup_position_in_grid]]"),
        "scalars or vectors of one size",
    ),
    "vec3 buffer": (
        kernel(
            "out[i] = v[i].x;",
            parameters=OUT.replace("uint i", "device float3* v [[buffer(1)]], uint i"),
        ),
        "layout",
    ),
    "name of a library function": (
        kernel("out[i] = mix(1);", "inline float mix(int a) { return a; }"),
        "prefix it",
    ),
    "one-letter macro": (kernel("out[i] = T(1);", "#define T float"), "prefix with SP_"),
    "mutable reference": (
        kernel(
            "out[i] = 0.0f;",
            parameters=OUT.replace("uint i", "device float& x [[buffer(1)]], uint i"),
        ),
        "must be constant",
    ),
}


@pytest.mark.skipif("clang" not in fronts(), reason="needs clang++ (Debian: clang-19)")
@pytest.mark.parametrize("case", CLANG)
def test_strict_front_end_refuses(case):
    source, message = CLANG[case]
    with pytest.raises((SyntaxError, MetalError), match=message):
        compile_shader(source, front="clang")


@pytest.mark.parametrize("case", LINT)
def test_lint_refuses(case):
    source, message = LINT[case]
    with pytest.raises(SyntaxError, match=message):
        compile_shader(source)


def test_threadgroup_arguments_cannot_be_bound():
    parameters = OUT.replace("uint i", "threadgroup float* s [[threadgroup(0)]], uint i")
    with pytest.raises((SyntaxError, MetalError), match="threadgroup"):
        lint(kernel("out[i] = s[0];", parameters=parameters))


@pytest.mark.parametrize("front", fronts())
def test_a_legal_kernel_passes(front):
    compile_shader(kernel(FULL.format(8192)), front=front)
