// Runs one threadgroup: its threads are fibers that switch at barriers, simdgroup operations and (now and then) before
// atomics; the next to run is drawn at random.
#pragma once
#include "checker.h"

asm(R"(
.text
.globl rt_switch
.hidden rt_switch
.type rt_switch,@function
rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emu {
constexpr uint32_t kOpMatrixMac = 22, kOpBarrier = 1000;  // numbers that the shims pass to rt_simd

inline std::vector<int> free_stacks, ready;
inline uint32_t live, at_barrier;
inline int barrier_flags;

inline void yield_fiber() { rt_switch(&current->sp, scheduler_sp); }

inline void fiber_main() {
    entry();
    current->state = kDone;
    void* unused;
    rt_switch(&unused, scheduler_sp);
    abort();
}

inline void start(Fiber& f) {
    f.stack = free_stacks.back();
    free_stacks.pop_back();
    void** top = (void**)(uintptr_t(stacks + size_t(f.stack + 1) * kStackBytes) & ~uintptr_t(15));
    *--top = nullptr;  // keeps the stack pointer aligned as after a call
    *--top = (void*)fiber_main;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    f.sp = top;
}

inline void make_ready(Fiber& f) {
    f.state = kReady;
    ready.push_back(int(f.thread));
}

inline void release_simdgroup(uint32_t index) {
    SimdGroup& g = simdgroups[index];
    const uint32_t base = index * kSimd;
    uint32_t operation = ~0u, mask = 0;
    bool mixed = false;
    for (uint32_t l = 0; l < kSimd && base + l < thread_count; ++l) {
        const Fiber& f = fibers[base + l];
        if (f.state != kAtSimd) continue;
        mixed |= operation != ~0u && operation != f.operation;
        operation = f.operation;
        mask |= 1u << l;
    }
    if (mixed)
        fault("simd-mixed", "simd-divergence: lanes of a simdgroup wait at different operations (threadgroup %llu)",
              (unsigned long long)group_index);
    if (operation == kOpMatrixMac) meter.matrix_macs += 512;
    if (operation == kOpBarrier) ++meter.simd_barriers;
    g.active[g.round & 1] = mask;
    ++g.round;
    g.waiting = 0;
    for (uint32_t l = 0; l < kSimd && base + l < thread_count; ++l) {
        Fiber& f = fibers[base + l];
        if (f.state != kAtSimd) continue;
        f.round = g.round - 1;
        make_ready(f);
    }
}

inline void release_barrier() {
    at_barrier = 0;
    ++meter.barriers;
    for (uint32_t i = 0; i < thread_count; ++i) {
        Fiber& f = fibers[i];
        if (f.state != kAtBarrier) continue;
        pass_barrier(f.group_epoch, barrier_flags);
        pass_barrier(f.simd_epoch, barrier_flags);
        ++f.syncs;
        make_ready(f);
    }
}

inline void run_one() {
    const size_t pick = uint64_t(random32()) * ready.size() >> 32;
    Fiber& f = fibers[ready[pick]];
    ready[pick] = ready.back();
    ready.pop_back();
    if (f.state == kNew) start(f);
    f.state = kReady;
    current = &f;
    rt_switch(&scheduler_sp, f.sp);
    SimdGroup& g = simdgroups[f.simdgroup];
    if (f.state == kDone) {
        free_stacks.push_back(f.stack);
        --live;
        --g.live;
    } else if (f.state == kReady) {
        ready.push_back(int(f.thread));
    } else if (f.state == kAtSimd) {
        ++g.waiting;
    } else if (f.state == kAtBarrier) {
        ++at_barrier;
    }
    if (g.waiting && g.waiting == g.live) release_simdgroup(f.simdgroup);
    if (at_barrier && at_barrier == live) {
        if (live < thread_count)
            fault("returned",
                  "barrier-divergence: threadgroup_barrier reached by %u of %u threads, the others have "
                  "returned (threadgroup %llu)",
                  live, thread_count, (unsigned long long)group_index);
        release_barrier();
    }
}

// Nobody can run: control flow has diverged around a collective operation. Reports it and lets the waiting go on.
inline void break_deadlock(uint32_t simdgroup_count) {
    for (uint32_t s = 0; s < simdgroup_count; ++s) {
        if (!simdgroups[s].waiting) continue;
        if (!option_lenient)
            fault("simd-partial",
                  "simd-divergence: operation reached by %u of %u live lanes (threadgroup %llu, "
                  "simdgroup %u)",
                  simdgroups[s].waiting, simdgroups[s].live, (unsigned long long)group_index, s);
        release_simdgroup(s);
        return;
    }
    fault("partial", "barrier-divergence: threadgroup_barrier not reached by every thread");
    release_barrier();
}

inline void run_group() {
    for (auto& r : regions)
        if (r.threadgroup) memset((void*)r.low, 0xff, r.high - r.low);  // NaN to who reads before writing
    const uint32_t simdgroup_count = (thread_count + kSimd - 1) / kSimd;
    for (uint32_t s = 0; s < simdgroup_count; ++s) simdgroups[s].live = simdgroups[s].waiting = simdgroups[s].round = 0;
    ready.clear();
    for (uint32_t i = 0; i < thread_count; ++i) {
        Fiber& f = fibers[i];
        f = Fiber();
        f.thread = i;
        f.lane = i % kSimd;
        f.simdgroup = i / kSimd;
        ++simdgroups[f.simdgroup].live;
        ready.push_back(int(i));
    }
    live = thread_count;
    at_barrier = 0;
    ++meter.groups;
    while (live) {
        while (!ready.empty()) run_one();
        if (live) break_deadlock(simdgroup_count);
    }
}
}  // namespace emu
