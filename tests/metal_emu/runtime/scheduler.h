// Runs one threadgroup: its threads are fibers that switch at barriers, simdgroup operations and (now and then) before
// atomics, straight to the next, which is drawn at random.
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

inline int free_stacks[kMaxThreads + 1], ready[kMaxThreads];
inline uint32_t free_count, ready_count, live, at_barrier, simdgroup_count;
inline int retired = -1;  // the stack of the thread that ended last: it may still be running on it
inline int barrier_flags;

inline void fiber_main() {
    entry();
    end_thread();
}

inline void start(Fiber& f) {
    f.stack = free_stacks[--free_count];
    void** top = (void**)(uintptr_t(stacks + size_t(f.stack + 1) * kStackBytes) & ~uintptr_t(15));
    *--top = nullptr;  // keeps the stack pointer aligned as after a call
    *--top = (void*)fiber_main;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    f.sp = top;
}

inline void make_ready(Fiber& f) {
    f.state = kReady;
    ready[ready_count++] = int(f.thread);
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

// Nobody can run: control flow has diverged around a collective operation. Reports it and lets the waiting go on.
inline void break_deadlock() {
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

// Enters the running thread, which has stopped, where it belongs, and lets go whom it was the last to keep waiting.
inline void settle(Fiber& f) {
    SimdGroup& g = simdgroups[f.simdgroup];
    if (f.state == kDone) {
        if (retired >= 0) free_stacks[free_count++] = retired;
        retired = f.stack;
        --live;
        --g.live;
    } else if (f.state == kReady) {
        ready[ready_count++] = int(f.thread);
    } else if (f.state == kAtSimd) {
        ++g.waiting;
    } else {
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

// Makes a thread that can run the running one. False: all have ended.
inline bool draw() {
    while (!ready_count) {
        if (!live) return false;
        break_deadlock();
    }
    const uint32_t pick = uint64_t(random32()) * ready_count >> 32;
    Fiber& f = fibers[ready[pick]];
    ready[pick] = ready[--ready_count];
    if (f.state == kNew) start(f);
    f.state = kReady;
    current = &f;
    return true;
}

// Stops the running thread in its new state until it is drawn.
inline void yield_fiber(State state) {
    Fiber& f = *current;
    f.state = state;
    settle(f);
    draw();
    if (current != &f) rt_switch(&f.sp, current->sp);
}

inline void end_thread() {
    current->state = kDone;
    settle(*current);
    void* unused;
    rt_switch(&unused, draw() ? current->sp : scheduler_sp);
    abort();
}

inline void run_group() {
    for (auto& r : regions)
        if (r.threadgroup) memset((void*)r.low, 0xff, r.high - r.low);  // NaN to who reads before writing
    simdgroup_count = (thread_count + kSimd - 1) / kSimd;
    for (uint32_t s = 0; s < simdgroup_count; ++s) simdgroups[s].live = simdgroups[s].waiting = simdgroups[s].round = 0;
    ready_count = 0;
    for (uint32_t i = 0; i < thread_count; ++i) {
        Fiber& f = fibers[i];
        f = Fiber();
        f.thread = i;
        f.lane = i % kSimd;
        f.simdgroup = i / kSimd;
        ++simdgroups[f.simdgroup].live;
        ready[ready_count++] = int(i);
    }
    live = thread_count;
    at_barrier = 0;
    ++meter.groups;
    if (draw()) rt_switch(&scheduler_sp, current->sp);
}
}  // namespace emu
