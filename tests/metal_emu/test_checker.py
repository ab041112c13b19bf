"""Faults at run time: races, bounds, divergence, alignment, aliasing. With the line of the
source."""

from pathlib import Path

import pytest
import torch

from metal_emu import MetalError, compile_shader, fronts

BAD = Path(__file__).parent / "bad"
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
both = pytest.mark.parametrize("front", fronts())


def bad(name, front, **options):
    return compile_shader((BAD / f"{name}.metal").read_text(), front=front, **options)


@both
def test_key_written_after_the_exchange_is_a_race(front):
    keys = torch.arange(1, 500, dtype=torch.int32).repeat_interleave(2)
    tables = torch.zeros(2048, dtype=torch.int32), torch.zeros(2048, dtype=torch.int32)
    with pytest.raises(MetalError, match=r"race: .*keys element .* at kernel\.metal:\d+"):
        bad("race_hash", front).insert_racy(keys, *tables, 2047, threads=len(keys), group_size=128)


@both
def test_missing_barrier_is_a_race(front):
    x = torch.arange(128.0)
    with pytest.raises(MetalError, match=r"race: .*tile .* at kernel\.metal:[89]"):
        bad("no_barrier", front).reverse_tile(x, torch.zeros_like(x), threads=128, group_size=64)


@both
def test_missing_barrier_shows_without_checks_too(front):
    """Random order and NaN-filled threadgroup memory spoil the lucky answer."""
    x, y = torch.arange(128.0), torch.zeros(128)
    bad("no_barrier", front, check=False).reverse_tile(x, y, threads=128, group_size=64)
    assert not torch.equal(y, x.reshape(2, 64).flip(1).reshape(-1))


@both
def test_results_that_tell_the_order_of_threads_show_under_several_schedules(front):
    text = HEAD + (
        "kernel void tickets(device atomic_uint* next [[buffer(0)]],\n"
        "                    device uint* out [[buffer(1)]],\n"
        "                    uint i [[thread_position_in_grid]]) {\n"
        "    out[i] = atomic_fetch_add_explicit(&next[0], 1u, memory_order_relaxed);\n"
        "}\n"
    )
    for threads in (512, 4096):
        tensors = torch.zeros(1, dtype=torch.int32), torch.zeros(threads, dtype=torch.int32)
        compile_shader(text, front=front).tickets(*tensors, threads=threads, group_size=128)
        assert tensors[0].item() == threads
        tensors[0].zero_()
        kernel = compile_shader(text, front=front, schedules=3).tickets
        with pytest.raises(MetalError, match="out differs under schedule 2"):
            kernel(*tensors, threads=threads, group_size=128)
        assert tensors[0].item() == threads  # each schedule starts from the same memory


@both
def test_return_before_a_barrier(front):
    with pytest.raises(MetalError, match="barrier-divergence"):
        bad("divergent", front).early_exit(torch.ones(64), 50, threads=64, group_size=64)


@both
def test_out_of_bounds(front):
    x = torch.ones(64)
    with pytest.raises(MetalError, match=r"out-of-bounds: read of 4 bytes at in\+256"):
        bad("oob", front).shift(x, torch.zeros_like(x), threads=64, group_size=64)


RACES = {
    "two threadgroups write one element": "if (t == 0) out[0] = float(i);",
    "one group reads what another writes": (
        "out[i] = 1.0f; if (t == 0) out[128 + i / 64] = out[127 - i];"
    ),
    "barrier of the wrong memory": (
        "out[i] = 1.0f; threadgroup_barrier(mem_flags::mem_threadgroup);out[128 + i] = out[i ^ 1u];"
    ),
}


@both
@pytest.mark.parametrize("case", RACES)
def test_device_memory_races(front, case):
    text = (
        f"{HEAD}kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]], "
        f"uint t [[thread_index_in_threadgroup]]) {{ {RACES[case]} }}"
    )
    with pytest.raises(MetalError, match="race: "):
        compile_shader(text, front=front).k(torch.zeros(256), threads=128, group_size=64)


@both
def test_device_barrier_orders_a_threadgroup(front):
    text = (
        f"{HEAD}kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) "
        "{ out[i] = float(i); threadgroup_barrier(mem_flags::mem_device);"
        "out[128 + i] = out[i ^ 1u]; }"
    )
    out = torch.zeros(256)
    compile_shader(text, front=front).k(out, threads=128, group_size=64)
    assert out[128:].tolist() == [i ^ 1 for i in range(128)]


@both
def test_simdgroup_operation_under_a_condition(front):
    text = (
        f"{HEAD}kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) "
        "{ if (i < 7u) out[i] = simd_sum(1.0f); }"
    )
    lenient = torch.zeros(32)
    compile_shader(text, front=front, lenient=True).k(lenient, threads=32, group_size=32)
    assert lenient[:7].tolist() == [7.0] * 7
    # The other lanes have returned and count as inactive, as on the GPU; that is no fault by
    # itself.
    compile_shader(text, front=front).k(torch.zeros(32), threads=32, group_size=32)
    waiting = text.replace("; }", "; threadgroup_barrier(mem_flags::mem_none); }")
    with pytest.raises(MetalError, match="simd-divergence"):
        compile_shader(waiting, front=front).k(torch.zeros(32), threads=32, group_size=32)


@both
def test_misaligned_vector_load(front):
    text = (
        f"{HEAD}kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], "
        "uint i [[thread_position_in_grid]]) "
        "{ *(device float4*)(y + 4 * i) = *(device const float4*)(x + 4 * i); }"
    )
    library = compile_shader(text, front=front)
    y = torch.zeros(32)
    library.k(torch.arange(32.0), y, threads=8, group_size=8)
    assert y.tolist() == list(range(32))
    with pytest.raises(MetalError, match="misaligned"):
        library.k(torch.arange(33.0)[1:], y, threads=8, group_size=8)


@both
def test_write_to_a_const_argument_and_aliases(front):
    text = (
        f"{HEAD}kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], "
        "uint i [[thread_position_in_grid]]) { ((device float*)x)[i] = y[i]; }"
    )
    library = compile_shader(text, front=front)
    with pytest.raises(MetalError, match="write to read-only argument x"):
        library.k(torch.zeros(8), torch.zeros(8), threads=8, group_size=8)
    x = torch.zeros(8)
    with pytest.raises(MetalError, match="overlap"):
        library.k(x, x, threads=8, group_size=8)


COUNTER = """#include <metal_stdlib>
using namespace metal;
kernel void count(device atomic_uint* n [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint seen = atomic_load_explicit(n, memory_order_relaxed);
    RETRY atomic_compare_exchange_weak_explicit(n, &seen, seen + 1u, memory_order_relaxed,
    memory_order_relaxed);
}"""


@both
def test_weak_exchange_fails_spuriously(front):
    """A loop is right; a single try loses counts."""
    right = COUNTER.replace("RETRY", "while (!").replace("relaxed);\n}", "relaxed)) {}\n}")
    n = torch.zeros(1, dtype=torch.int32)
    compile_shader(right, front=front).count(n, threads=200, group_size=200)
    assert n.item() == 200
    n.zero_()
    compile_shader(COUNTER.replace("RETRY", ""), front=front).count(n, threads=200, group_size=200)
    assert n.item() < 200
