// What the parts of the emulator share: the threads of the running threadgroup, options, faults, counters.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace emu {
constexpr int kMaxThreads = 1024, kSimd = 32, kSlotBytes = 32;
// Not a power of two: tops of stacks a power of two apart share one set of every cache.
constexpr size_t kStackBytes = (128 << 10) + 17 * 64;

enum State { kNew, kReady, kAtBarrier, kAtSimd, kDone };

// A simdgroup operation is a meeting: every lane leaves its value, and when all live lanes are there each reads all.
// Two sets of values, because fast lanes may be at the next operation while slow ones still read this one's.
struct alignas(16) SimdGroup {
    uint8_t value[2][kSimd][kSlotBytes];
    uint32_t active[2];
    uint32_t live, waiting, round;
};

struct Fiber {
    void* sp;
    int stack;
    State state;
    uint32_t thread, lane, simdgroup, round, operation;
    // Barriers passed, by the memory they order (0: device, 1: threadgroup) and among whom. syncs: of any kind.
    uint32_t group_epoch[2], simd_epoch[2], syncs;
};

inline Fiber fibers[kMaxThreads];
inline SimdGroup simdgroups[kMaxThreads / kSimd];
inline Fiber* current;
inline uint8_t* stacks;

inline uint32_t thread_count, group_size[3], group_position[3], group_count[3], nominal_size[3];
inline uint64_t grid_size[3], group_index;
inline void** arguments;
inline void (*entry)();

inline bool option_lenient, option_spurious = true, option_interleave = true;

inline struct {
    uint64_t groups, barriers, simd_barriers, matrix_macs, fmas;
} meter;

inline void pass_barrier(uint32_t* epoch, int flags) {
    epoch[0] += flags & 1;
    epoch[1] += flags >> 1 & 1;
}

inline uint64_t random_state;
inline uint32_t random32() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return uint32_t(random_state >> 20);
}

inline std::vector<std::string> messages;
inline std::set<std::string> reported;
inline uint64_t fault_count;

// Counts a fault; keeps the text of the first with this key.
inline void fault(const std::string& key, const char* format, ...) {
    ++fault_count;
    if (messages.size() >= 64 || !reported.insert(key).second) return;
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    messages.push_back(text);
}
}  // namespace emu
