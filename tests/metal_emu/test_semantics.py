"""The call semantics of `torch.mps.compile_shader` that launch code relies on, and Metal's built-in
inputs."""

import pytest
import torch

from metal_emu import MetalError, compile_shader, fronts

HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
both = pytest.mark.parametrize("front", fronts())

SCALARS = (
    HEAD
    + """
kernel void k(device float* o [[buffer(0)]], constant int& a [[buffer(1)]], constant long& b
[[buffer(2)]],
              constant float& c [[buffer(3)]], constant long* l [[buffer(4)]], constant int* s
              [[buffer(5)]],
              uint i [[thread_position_in_grid]]) {
    if (i != 0) return;
    o[0] = a;
    o[1] = b == 5000000000l;
    o[2] = c;
    o[3] = l[1];
    o[4] = s[1];
    o[5] = s[2];
}"""
)


@both
def test_integers_become_int64_and_floats_float32(front):
    k = compile_shader(SCALARS, front=front).k
    o = torch.zeros(6)
    k(o, -7, 5000000000, 0.5, [1, 2], [3, 4], threads=1, group_size=1)
    assert o.tolist() == [-7, 1, 0.5, 2, 0, 4]  # int* sees halves of the 8-byte elements
    k(o, -7, 5000000000, 0.5, [1, 2], [3, 4, 9], threads=1, group_size=1, arg_casts={5: "int32"})
    assert o.tolist()[4:] == [4, 9]
    with pytest.raises(MetalError, match="out-of-bounds: read of 8 bytes at b"):
        k(
            o,
            -7,
            1,
            0.5,
            [1, 2],
            [3, 4, 9],
            threads=1,
            group_size=1,
            arg_casts={2: "int32", 5: "int32"},
        )


@both
def test_string_casts_hit_floats_too(front):
    k = compile_shader(SCALARS, front=front).k
    o = torch.zeros(6)
    with pytest.raises(MetalError, match="out-of-bounds"):
        k(o, -7, 1, 0.5, [1, 2], [3, 4, 9], threads=1, group_size=1, arg_casts="int32")
    assert o[2] == 0


@both
def test_last_group_is_smaller(front):
    text = (
        f"{HEAD}kernel void k(device int* o [[buffer(0)]], uint i [[thread_position_in_grid]], "
        "uint n [[threads_per_threadgroup]], uint d [[dispatch_threads_per_threadgroup]]) "
        "{ o[i] = int(n * 1000 + d); }"
    )
    o = torch.zeros(100, dtype=torch.int32)
    compile_shader(text, front=front).k(o, threads=100, group_size=64)
    assert set(o[:64].tolist()) == {64064}
    assert set(o[64:].tolist()) == {36064}


@both
def test_simdgroup_functions(front):
    text = (
        HEAD
        + """
kernel void k(device uint* o [[buffer(0)]], uint i [[thread_position_in_grid]], uint lane
[[thread_index_in_simdgroup]]) {
    const uint a = simd_prefix_exclusive_sum(i + 1u), b = simd_shuffle(i, ushort(31 - lane));
    const ulong votes = ulong(simd_ballot(i % 3 == 0));
    o[8 * i] = a;
    o[8 * i + 1] = b;
    o[8 * i + 2] = simd_sum(i);
    o[8 * i + 3] = simd_max(i);
    o[8 * i + 4] = simd_min(i);
    o[8 * i + 5] = uint(votes);
    o[8 * i + 6] = simd_broadcast(i, ushort(5));
    o[8 * i + 7] = simd_shuffle_xor(i, ushort(1));
}"""
    )
    o = torch.zeros(64, 8, dtype=torch.int32)
    compile_shader(text, front=front).k(o, threads=64, group_size=64)
    i = torch.arange(64).reshape(2, 32)
    votes = [sum(1 << lane for lane in range(32) if row[lane] % 3 == 0) for row in i.tolist()]
    want = torch.stack(
        [
            (i + 1).cumsum(1) - i - 1,
            i.flip(1),
            i.sum(1, keepdim=True).expand(2, 32),
            i.amax(1, keepdim=True).expand(2, 32),
            i.amin(1, keepdim=True).expand(2, 32),
            torch.tensor(votes)[:, None].expand(2, 32).int().long(),
            i[:, 5:6].expand(2, 32),
            i ^ 1,
        ],
        2,
    ).reshape(64, 8)
    assert torch.equal(o.long(), want)


@both
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float", torch.float32), ("half", torch.float16), ("bfloat", torch.bfloat16)],
)
def test_simdgroup_matrices(front, name, dtype):
    """c = a @ b.T with float accumulators, operands loaded plain and transposed."""
    text = (
        HEAD
        + f"""
kernel void k(device const {name}* a [[buffer(0)]], device const {name}* b [[buffer(1)]], device
float* c [[buffer(2)]],
              uint i [[thread_position_in_grid]]) {{
    simdgroup_matrix<{name}, 8, 8> x, y;
    simdgroup_matrix<float, 8, 8> z = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_load(x, a, 8);
    simdgroup_load(y, b, 8, ulong2(0, 0), true);
    simdgroup_multiply_accumulate(z, x, y, z);
    simdgroup_store(z, c, 8);
}}"""
    )
    a, b, c = torch.randn(8, 8).to(dtype), torch.randn(8, 8).to(dtype), torch.zeros(8, 8)
    compile_shader(text, front=front).k(a, b, c, threads=32, group_size=32)
    assert torch.allclose(c, a.float() @ b.float().T, atol=1e-5)


@both
def test_argument_errors(front):
    text = (
        f"{HEAD}kernel void k(device float* o [[buffer(0)]], constant int& n [[buffer(1)]], "
        "uint i [[thread_position_in_grid]]) { if (int(i) < n) o[i] = 1.0f; }"
    )
    library, x = compile_shader(text, front=front), torch.zeros(8, 8)
    with pytest.raises(MetalError, match="not contiguous"):
        library.k(x.T, 64)
    with pytest.raises(ValueError, match="Threadgroup size"):
        library.k(x, 64, threads=2048, group_size=2048)
    with pytest.raises(MetalError, match="takes 2"):
        library.k(x)
    with pytest.raises(MetalError, match="tensor passed for scalar"):
        library.k(x, x)
    with pytest.raises(MetalError, match="empty"):
        library.k(x[:0], 1, threads=1)
    with pytest.raises(MetalError, match="same rank"):
        library.k(x, 64, threads=(8, 8), group_size=8)
    with pytest.raises(MetalError, match="1 to 2"):
        library.k(x, 64, threads=0)
    with pytest.raises(RuntimeError, match="nope"):
        _ = library.nope
    library.k(x, 64)
    assert x.min() == 1  # threads default to the size of the first tensor


METERED = (
    HEAD
    + """
kernel void k(device const float* a [[buffer(0)]], device float* b [[buffer(1)]], device
atomic_uint* n [[buffer(2)]],
              uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup float s[64];
    s[t] = fma(a[i], 1.0f, a[0]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<float, 8, 8> x, y = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_load(x, s, 8);
    simdgroup_multiply_accumulate(y, x, x, y);
    simdgroup_store(y, b + i / 32 * 64, 8);
    if (t < 5) atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
}"""
)


@both
def test_traffic_meter_against_hand_counts(front):
    """Two groups of 64 threads, two simdgroups each."""
    library, n = compile_shader(METERED, front=front), torch.zeros(1, dtype=torch.int32)
    library.k(torch.ones(128), torch.zeros(256), n, threads=128, group_size=64)
    t = library.k.traffic
    assert n.item() == 10
    assert (t.threadgroups, t.barriers, t.simd_macs, t.fmas) == (2, 2, 4 * 512, 128)
    assert (t.total("read", "device"), t.total("written", "device"), t.device_atomics) == (
        1024,
        1024,
        10,
    )
    assert t.threadgroup_bytes == 4 * 64 * 4 + 128 * 4
    assert t.buffers["a"].merged == 128 * 4 + 4 * 4  # a[0] is read once a simdgroup
    touched = {k: b.touched for k, b in t.buffers.items() if b.space == "device"}
    assert touched == {"a": 512, "b": 1024, "n": 4}
    unchecked = compile_shader(METERED, front=front, check=False)
    unchecked.k(torch.ones(128), torch.zeros(256), n, threads=128, group_size=64)
    assert unchecked.k.traffic is None
