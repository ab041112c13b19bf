// Race and bounds checks, and the traffic meter. Every access of an instrumented kernel comes through `access`.
// A race is a pair of accesses to one element, one of them a write and not both atomic, that no barrier orders. That
// is a property of the program, not of the schedule: threadgroups that run one after the other here still race.
#pragma once
#include "state.h"

extern "C" {
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));
void rt_switch(void** save_sp, void* new_sp);
}

namespace emu {
inline void* scheduler_sp;  // of run_group, where the last thread to end goes

// A buffer, a scalar argument or a threadgroup array.
struct Region {
    uintptr_t low, high;
    uint32_t granule, shift;  // an element is `granule` = 1 << `shift` bytes
    bool threadgroup;
    std::string name;
    size_t first_cell;
    bool read_only;
    uint64_t bytes_read = 0, bytes_written = 0, atomics = 0, bytes_merged = 0;
    bool contains(uintptr_t a) const { return a >= low && a < high; }
    size_t cells() const { return (high - low + granule - 1) / granule; }
};

// Who touched an element, and how many barriers it had passed. thread 0: nobody.
struct Record {
    uint32_t thread;
    uint16_t epoch, simd_epoch;
};
struct Cell {
    Record write, read[2], atomic[2];
};

enum Kind { kRead, kWrite, kAtomic };

inline std::vector<Region> regions;
inline std::vector<Cell> cells;
inline std::vector<std::pair<uintptr_t, uintptr_t>> ignored;
inline bool checking, metering;
inline uint64_t recent_reads[1 << 18];

inline uint32_t group_of(const Record& r) { return r.thread >> 11; }
inline uint32_t thread_of(const Record& r) { return (r.thread & 2047) - 1; }

inline bool ordered(const Record& before, const Record& now, bool threadgroup) {
    if (before.thread == 0 || before.thread == now.thread) return true;
    if (group_of(before) != group_of(now)) return threadgroup;
    if (before.epoch < now.epoch) return true;
    return thread_of(before) / kSimd == thread_of(now) / kSimd && before.simd_epoch < now.simd_epoch;
}

// An instruction mostly goes to the buffer that it went to before.
inline Region* find_region(uintptr_t a, void* pc) {
    static uint8_t last[256];
    uint8_t& guess = last[(uintptr_t)pc >> 2 & 255];
    if (guess < regions.size() && regions[guess].contains(a)) return &regions[guess];
    for (size_t i = 0; i < regions.size(); ++i)
        if (regions[i].contains(a)) return &regions[guess = uint8_t(i)];
    return nullptr;
}

// Reads of one address by several lanes of a simdgroup, by one instruction and between two synchronisations, are one
// request on a GPU. A table of hashes in sets of two finds them; an entry lost to two others only counts a read again.
inline bool merges(uintptr_t a, size_t bytes, void* pc) {
    auto mix = [](uint64_t x) {
        x ^= x >> 31;
        x *= 0x9e3779b97f4a7c15ull;
        return x ^ x >> 29;
    };
    const uint64_t when = group_index << 37 | uint64_t(current->syncs) << 5 | current->simdgroup;
    const uint64_t hash = mix(mix(mix(a * 32 + bytes) ^ (uintptr_t)pc) ^ when) | 1;
    uint64_t* set = recent_reads + 2 * (hash >> 47);
    if (set[0] == hash) return true;
    const bool known = set[1] == hash;
    set[1] = set[0];
    set[0] = hash;
    return known;
}

inline const char* name_of(Kind kind) { return kind == kRead ? "read" : kind == kWrite ? "write" : "atomic"; }

void end_thread();  // the running one: the access it was about to make must not happen

// Reports a bad access. Memory that is no argument of the kernel but belongs to the
// library (constants, guards of statics) is let through.
inline __attribute__((noinline)) void out_of_bounds(uintptr_t a,
                                                    size_t bytes,
                                                    Kind kind,
                                                    const Region* region,
                                                    void* pc) {
    for (auto& range : ignored)
        if (a >= range.first && a < range.second) return;
    if (!region)
        for (auto& r : regions)
            if (a + 4096 >= r.low && a < r.high + 4096) region = &r;
    if (!region && a >= (uintptr_t)&__ehdr_start && a < (uintptr_t)&_end) return;
    char where[200] = "a wild address";
    if (region)
        snprintf(where, sizeof where, "%s%+lld (size %zu)", region->name.c_str(), (long long)(a - region->low),
                 size_t(region->high - region->low));
    fault("bounds" + std::to_string((uintptr_t)pc),
          "out-of-bounds: %s of %zu bytes at %s by thread %u of threadgroup %llu @pc=%p", name_of(kind), bytes, where,
          current->thread, (unsigned long long)group_index, pc);
    end_thread();
}

inline __attribute__((noinline)) void report_race(const Record& other,
                                                  const char* what,
                                                  Kind kind,
                                                  const Region& r,
                                                  size_t element,
                                                  void* pc) {
    fault("race" + std::to_string((uintptr_t)pc) + what + name_of(kind),
          "race: %s by thread %u of threadgroup %u, then unordered %s by thread %u of threadgroup %u, %s element %zu "
          "@pc=%p",
          what, thread_of(other), group_of(other), name_of(kind), current->thread, unsigned(group_index),
          r.name.c_str(), element, pc);
}

inline bool same(const Record& a, const Record& b) { return memcmp(&a, &b, sizeof a) == 0; }

// Whether an access adds nothing: the first to an element, or one more like the last with nobody else about.
inline bool settled(Cell& cell, const Record& me, Kind kind) {
    if (cell.atomic[0].thread || kind == kAtomic) return false;
    if (kind == kRead) {
        if (cell.write.thread && cell.write.thread != me.thread) return false;
        if (cell.read[0].thread && !same(cell.read[0], me)) return false;
        cell.read[0] = me;
        return true;
    }
    if (cell.read[0].thread || (cell.write.thread && !same(cell.write, me))) return false;
    cell.write = me;
    return true;
}

inline void check_cell(Cell& cell, const Record& me, Kind kind, const Region& r, size_t element, void* pc) {
    if (settled(cell, me, kind)) return;
    // Threadgroup memory of an earlier group is other memory.
    if (r.threadgroup && cell.write.thread && group_of(cell.write) != group_of(me)) cell = Cell();
    const Record* other = nullptr;
    const char* what = "";
    auto against = [&](const Record& record, const char* name) {
        if (other || ordered(record, me, r.threadgroup)) return;
        other = &record;
        what = name;
    };
    against(cell.write, "write");
    if (kind != kRead)
        for (auto& record : cell.read) against(record, "read");
    if (kind != kAtomic)
        for (auto& record : cell.atomic) against(record, "atomic");
    if (other) report_race(*other, what, kind, r, element, pc);
    if (kind == kWrite) {
        cell.write = me;
        return;
    }
    // Two records keep a reader of another group from hiding one of this group.
    Record* records = kind == kRead ? cell.read : cell.atomic;
    if (records[0].thread != me.thread && !ordered(records[0], me, r.threadgroup)) records[1] = records[0];
    records[0] = me;
}

inline void count(Region& r, uintptr_t a, size_t bytes, Kind kind, void* pc) {
    if (kind == kWrite) {
        r.bytes_written += bytes;
    } else if (kind == kAtomic) {
        ++r.atomics;
    } else {
        r.bytes_read += bytes;
        if (!merges(a, bytes, pc)) r.bytes_merged += bytes;
    }
}

// Most accesses are to a thread's own variables.
inline bool checked(uintptr_t a) {
    if (a - (uintptr_t)stacks < kStackBytes * (kMaxThreads + 1) || !checking || !current) return false;
    return a - (uintptr_t)simdgroups >= sizeof simdgroups;
}

inline __attribute__((noinline)) void checked_access(uintptr_t a, size_t bytes, Kind kind, void* pc) {
    Region* r = find_region(a, pc);
    if (!r || a + bytes > r->high) return out_of_bounds(a, bytes, kind, r, pc);
    if (kind != kRead && r->read_only)
        fault("read-only" + r->name, "write to read-only argument %s @pc=%p", r->name.c_str(), pc);
    if (metering) count(*r, a, bytes, kind, pc);
    const Record me{uint32_t(group_index << 11 | (current->thread + 1)), uint16_t(current->group_epoch[r->threadgroup]),
                    uint16_t(current->simd_epoch[r->threadgroup])};
    const size_t last = (a + bytes - 1 - r->low) >> r->shift;
    for (size_t c = (a - r->low) >> r->shift; c <= last; ++c) check_cell(cells[r->first_cell + c], me, kind, *r, c, pc);
}

inline void access(uintptr_t a, size_t bytes, Kind kind, void* pc) {
    if (checked(a)) checked_access(a, bytes, kind, pc);
}

inline __attribute__((noinline)) void misaligned(uintptr_t a, size_t bytes, Kind kind, void* pc) {
    fault("align" + std::to_string((uintptr_t)pc), "misaligned: %s of %zu bytes at address %% %zu = %zu @pc=%p",
          name_of(kind), bytes, bytes, size_t(a % bytes), pc);
    end_thread();
}

// An access that the compiler believes aligned.
inline void aligned_access(uintptr_t a, size_t bytes, Kind kind, void* pc) {
    if (!checked(a)) return;
    if (a & (bytes - 1)) misaligned(a, bytes, kind, pc);
    checked_access(a, bytes, kind, pc);
}
}  // namespace emu
