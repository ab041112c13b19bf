// The C interface of the emulator: what kernels call, what the host calls, and the hooks that -fsanitize=thread makes
// compilers emit (no sanitizer runtime is linked). An object of this file is linked into every compiled shader.
#include <sys/mman.h>

#include "scheduler.h"

using namespace emu;

#define PC __builtin_return_address(0)

extern "C" {
// ---- called by kernels ----
void* rt_arg(int i) { return arguments[i]; }

unsigned rt_attr(int what, int d) {  // numbers as in source.ATTRIBUTES
    const uint32_t t = current->thread;
    const uint32_t local[3] = {t % group_size[0], t / group_size[0] % group_size[1],
                               t / (group_size[0] * group_size[1])};
    switch (what) {
        case 0:
            return group_position[d] * nominal_size[d] + local[d];
        case 1:
            return local[d];
        case 2:
            return group_position[d];
        case 3:
            return group_size[d];
        case 4:
            return group_count[d];
        case 5:
            return uint32_t(grid_size[d]);
        case 6:
            return t;
        case 7:
            return current->lane;
        case 8:
            return current->simdgroup;
        case 9:
            return kSimd;
        case 10:
            return (thread_count + kSimd - 1) / kSimd;
        case 11:
            return nominal_size[d];
    }
    return 0;
}

void rt_barrier(int flags) {
    barrier_flags = flags;
    yield_fiber(kAtBarrier);
}

// Leaves a value, waits for the other lanes, returns all values (kSlotBytes apart) and the mask of lanes present.
void* rt_simd(unsigned operation, const void* value, unsigned bytes, unsigned* mask) {
    SimdGroup& g = simdgroups[current->simdgroup];
    Fiber& f = *current;
    uint8_t* slot = g.value[g.round & 1][f.lane];
    if (bytes == 4)  // mostly, and faster than a copy of any size
        memcpy(slot, value, 4);
    else
        memcpy(slot, value, bytes);
    f.operation = operation;
    yield_fiber(kAtSimd);
    *mask = g.active[f.round & 1];
    return g.value[f.round & 1];
}

// Adds to `sum` a lane's two elements of the product of two 8 x 8 matrices; `own`: its two of each. Lanes hold elements
// in the layout that MLX relies on.
void rt_product(const float* own, float* sum) {
    auto holder = [](uint32_t row, uint32_t column) {
        return (row >> 2) << 4 | (column >> 2) << 3 | (row & 3) << 1 | (column >> 1 & 1);
    };
    unsigned mask;
    const auto* all = (const float (*)[kSlotBytes / 4]) rt_simd(kOpMatrixMac, own, 16, &mask);
    const uint32_t lane = current->lane, row = (lane >> 4) * 4 + (lane >> 1 & 3);
    const uint32_t column = (lane >> 3 & 1) * 4 + (lane & 1) * 2;
    for (uint32_t k = 0; k < 8; ++k) {
        const float a = all[holder(row, k)][k & 1];
        const float* b = all[holder(k, column)];
        sum[0] += a * b[2];
        sum[1] += a * b[3];
    }
}

void rt_simd_barrier(int flags) {
    unsigned mask, nothing = 0;
    rt_simd(kOpBarrier, &nothing, sizeof nothing, &mask);
    pass_barrier(current->simd_epoch, flags);
    ++current->syncs;
}

unsigned rt_lane() { return current->lane; }
void rt_fma() { ++meter.fmas; }

// ---- called by the host ----
void rt_options(int spurious, int interleave, int meter_bytes) {
    option_spurious = spurious;
    option_interleave = interleave;
    metering = meter_bytes != 0;
}
void rt_clear() {
    regions.clear();
    ignored.clear();
}
void rt_region(uintptr_t low, size_t bytes, unsigned granule, int threadgroup, const char* name, int read_only) {
    const uint32_t shift = uint32_t(__builtin_ctz(granule ? granule : 1));
    regions.push_back(Region{low, low + bytes, 1u << shift, shift, threadgroup != 0, name, 0, read_only != 0});
}
void rt_ignore(uintptr_t low, size_t bytes) { ignored.push_back({low, low + bytes}); }

static void prepare(int check, int lenient, uint64_t seed) {
    if (!stacks) {
        stacks = (uint8_t*)mmap(nullptr, kStackBytes * (kMaxThreads + 1), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (int i = kMaxThreads; i >= 0; --i) free_stacks[free_count++] = i;
    }
    messages.clear();
    reported.clear();
    fault_count = 0;
    meter = {};
    option_lenient = lenient;
    checking = check != 0;
    random_state = seed * 2654435761u + 88172645463325252ull;
    size_t total = 0;
    for (auto& r : regions) {
        r.first_cell = total;
        total += r.cells();
    }
    cells.clear();
    if (!checking) return;
    cells.resize(total);
    if (metering) memset(recent_reads, 0, sizeof recent_reads);
}

// Runs a dispatch: `threads` in all, in groups of `group`, threadgroups in an order drawn at random. Returns faults.
uint64_t rt_launch(void (*kernel)(),
                   void** args,
                   const uint64_t* threads,
                   const uint64_t* group,
                   int check,
                   int lenient,
                   uint64_t seed) {
    prepare(check, lenient, seed);
    entry = kernel;
    arguments = args;
    for (int d = 0; d < 3; ++d) {
        grid_size[d] = threads[d];
        nominal_size[d] = uint32_t(group[d]);
        group_count[d] = uint32_t((threads[d] + group[d] - 1) / group[d]);
    }
    const uint64_t n = uint64_t(group_count[0]) * group_count[1] * group_count[2];
    auto gcd = [](uint64_t x, uint64_t y) {
        while (y) {
            const uint64_t t = x % y;
            x = y;
            y = t;
        }
        return x;
    };
    uint64_t step = random32() % n | 1, position = random32() % n;  // a walk that meets every group once
    while (gcd(step, n) != 1) ++step;
    for (uint64_t i = 0; i < n; ++i, position = (position + step) % n) {
        group_index = position;
        group_position[0] = uint32_t(position % group_count[0]);
        group_position[1] = uint32_t(position / group_count[0] % group_count[1]);
        group_position[2] = uint32_t(position / (uint64_t(group_count[0]) * group_count[1]));
        for (int d = 0; d < 3; ++d) {
            const uint64_t left = grid_size[d] - uint64_t(group_position[d]) * nominal_size[d];
            group_size[d] = uint32_t(left < nominal_size[d] ? left : nominal_size[d]);
        }
        thread_count = group_size[0] * group_size[1] * group_size[2];
        run_group();
    }
    current = nullptr;
    return fault_count;
}

void rt_messages(char* buffer, int size) {
    std::string all;
    for (auto& m : messages) all += m + '\n';
    strncpy(buffer, all.c_str(), size - 1);
    buffer[size - 1] = 0;
}

// Counters of the last launch. Region i in the order of rt_region: bytes read, merged, written, atomics, bytes touched.
// i < 0: threadgroups, threadgroup barriers, simdgroup barriers, multiply-accumulates in matrices, fma.
void rt_meter(int i, uint64_t* out) {
    if (i < 0) {
        const uint64_t values[5] = {meter.groups, meter.barriers, meter.simd_barriers, meter.matrix_macs, meter.fmas};
        memcpy(out, values, sizeof values);
        return;
    }
    const Region& r = regions[i];
    uint64_t touched = 0;
    for (size_t c = 0; checking && c < r.cells(); ++c) {
        const Cell& cell = cells[r.first_cell + c];
        touched += cell.write.thread || cell.read[0].thread || cell.atomic[0].thread;
    }
    const uint64_t values[5] = {r.bytes_read, r.bytes_merged, r.bytes_written, r.atomics, touched * r.granule};
    memcpy(out, values, sizeof values);
}

// ---- hooks ----
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HOOKS(N)                                                                     \
    void __tsan_read##N(void* a) { aligned_access((uintptr_t)a, N, kRead, PC); }     \
    void __tsan_write##N(void* a) { aligned_access((uintptr_t)a, N, kWrite, PC); }   \
    void __tsan_unaligned_read##N(void* a) { access((uintptr_t)a, N, kRead, PC); }   \
    void __tsan_unaligned_write##N(void* a) { access((uintptr_t)a, N, kWrite, PC); } \
    void __tsan_read_write##N(void* a) {                                             \
        aligned_access((uintptr_t)a, N, kRead, PC);                                  \
        aligned_access((uintptr_t)a, N, kWrite, PC);                                 \
    }                                                                                \
    void __tsan_unaligned_read_write##N(void* a) {                                   \
        access((uintptr_t)a, N, kRead, PC);                                          \
        access((uintptr_t)a, N, kWrite, PC);                                         \
    }                                                                                \
    void __tsan_volatile_read##N(void* a) { access((uintptr_t)a, N, kRead, PC); }    \
    void __tsan_volatile_write##N(void* a) { access((uintptr_t)a, N, kWrite, PC); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16) void __tsan_read_range(void* a, size_t n) {
    access((uintptr_t)a, n, kRead, PC);
}
void __tsan_write_range(void* a, size_t n) { access((uintptr_t)a, n, kWrite, PC); }
void* __tsan_memcpy(void* d, const void* s, size_t n) {
    access((uintptr_t)s, n, kRead, PC);
    access((uintptr_t)d, n, kWrite, PC);
    return memcpy(d, s, n);
}
void* __tsan_memmove(void* d, const void* s, size_t n) {
    access((uintptr_t)s, n, kRead, PC);
    access((uintptr_t)d, n, kWrite, PC);
    return memmove(d, s, n);
}
void* __tsan_memset(void* d, int c, size_t n) {
    access((uintptr_t)d, n, kWrite, PC);
    return memset(d, c, n);
}
}

// ---- atomics: fibers make the plain operation exact ----
namespace {
enum Operation { kLoad, kStore, kAdd, kSub, kMin, kMax, kAnd, kOr, kXor };

template <class T>
T arithmetic(int operation, T* p, T v) {
    const T old = *p;
    switch (operation) {
        case kStore:
            *p = v;
            break;
        case kAdd:
            *p = old + v;
            break;
        case kSub:
            *p = old - v;
            break;
        case kMin:
            *p = v < old ? v : old;
            break;
        case kMax:
            *p = v > old ? v : old;
            break;
    }
    return old;
}

template <class T>
T integer(int operation, T* p, T v) {
    const T old = *p;
    switch (operation) {
        case kAnd:
            *p = old & v;
            return old;
        case kOr:
            *p = old | v;
            return old;
        case kXor:
            *p = old ^ v;
            return old;
    }
    return arithmetic(operation, p, v);
}

// Another thread of the threadgroup may run before an atomic: explores interleavings of lock-free code.
inline void before_atomic(uint64_t a, size_t bytes, void* pc) {
    if (option_interleave && current && (random32() & 3) == 0) {
        yield_fiber(kReady);
    }
    access(a, bytes, kAtomic, pc);
}
}  // namespace

extern "C" {
uint32_t rt_at_u32(int op, uint64_t a, uint32_t v) {
    before_atomic(a, 4, PC);
    return integer(op, (uint32_t*)a, v);
}
int32_t rt_at_i32(int op, uint64_t a, int32_t v) {
    before_atomic(a, 4, PC);
    return integer(op, (int32_t*)a, v);
}
float rt_at_f32(int op, uint64_t a, float v) {
    before_atomic(a, 4, PC);
    return arithmetic(op, (float*)a, v);
}
uint64_t rt_at_u64(int op, uint64_t a, uint64_t v) {
    before_atomic(a, 8, PC);
    return integer(op, (uint64_t*)a, v);
}
int rt_cas_u32(uint64_t a, uint32_t* expected, uint32_t v) {  // weak: fails one time in eight for no reason
    before_atomic(a, 4, PC);
    uint32_t* p = (uint32_t*)a;
    if (*p == *expected && !(option_spurious && (random32() & 7) == 0)) {
        *p = v;
        return 1;
    }
    *expected = *p;
    return 0;
}
}

// float -> bfloat, to nearest even: clang calls it and libgcc 12 lacks it.
asm(R"(
.text
.globl __truncsfbf2
.type __truncsfbf2,@function
__truncsfbf2:
  movd %xmm0, %eax
  movl %eax, %ecx
  andl $0x7fffffff, %ecx
  cmpl $0x7f800000, %ecx
  ja 1f
  movl %eax, %ecx
  shrl $16, %ecx
  andl $1, %ecx
  leal 0x7fff(%rax,%rcx), %eax
  shrl $16, %eax
  movd %eax, %xmm0
  ret
1:
  shrl $16, %eax
  orl $0x40, %eax
  movd %eax, %xmm0
  ret
)");
