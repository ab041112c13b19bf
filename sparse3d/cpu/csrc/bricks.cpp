// How bricks are found: rows enter by parts, parts are joined, then the rows get their places.
#include "bricks.h"

#include "order.h"
#include "thread_pool.h"

namespace s3d {
namespace {

constexpr int kWord = 64;  // cells of a word
constexpr uint64_t kNoKey = ~uint64_t(0);
constexpr int64_t kRows = 64;           // whose memory is asked for before it is read
constexpr int64_t kBricks = 1024;       // of a work item
constexpr int64_t kTaken = 32;          // numbers of bricks that a part takes at a time
constexpr int64_t kPartRows = 1 << 13;  // fewer are not worth a thread of their own

}  // namespace

// At most half full, also where every row of a part has a brick of its own: those beside a part's
// border may, and only all parts together must not.
Bricks::Slots::Slots(int64_t rows) : bits(std::max(8, log2_ceil(2 * rows))) {
  words = Buffer<uint32_t>(int64_t(1) << bits);
  memset(words.data(), 0, static_cast<size_t>(words.size()) * 4);
}

bool Bricks::build(int32_t threads) {
  if (n_ < 2 * kPartRows) threads = 1;  // to wake one takes longer
  if (n_ == 0 || !measure(threads)) return false;
  // Two for a thread: sparse parts take longer. Parts of rows in no order meet the same bricks.
  const int64_t parts = threads == 1 || scattered()
                            ? 1
                            : std::max<int64_t>(1, std::min<int64_t>(2 * threads, n_ / kPartRows));
  most_ = n_ / 2 + (parts + 1) * kTaken;
  tag_mask_ = ~static_cast<uint32_t>((uint64_t(1) << log2_ceil(most_)) - 1);
  keys_ = Buffer<uint64_t>(most_);
  words_ = Buffer<Words>(most_);
  brick_of_ = Buffer<int32_t>(n_);
  cell_of_ = Buffer<uint16_t>(n_);
  memset(words_[0], 0, sizeof(Words));
  keys_[0] = kNoKey;
  if (!enter_parts(threads, parts) && (parts == 1 || !enter_parts(threads, 1))) return false;
  number(threads);
  return true;
}

bool Bricks::scattered() const {
  constexpr int64_t kBetween = 64;  // rows from one that is compared with its last to the next
  int64_t looked = 0, far = 0;
  for (int64_t i = kBetween; i < n_; i += kBetween, ++looked) {
    bool jump = false;
    for (int a = 1; a < 4; ++a) {
      const int64_t by = int64_t(rows_[i * 4 + a]) - rows_[(i - 1) * 4 + a];
      jump |= by < -kSide || by > kSide;
    }
    far += jump;
  }
  return 4 * far > 3 * looked;
}

bool Bricks::measure(int32_t threads) {
  const int64_t chunks = chunk_count(n_);
  Buffer<int32_t> ends(chunks * 8);
  parallel_for(threads, chunks, [&](int64_t c) {
    const int32_t* row = rows_ + c * kChunk * 4;
    int32_t low[4], high[4];
    for (int a = 0; a < 4; ++a) low[a] = high[a] = row[a];
    for (const int32_t* end = rows_ + std::min(n_, (c + 1) * kChunk) * 4; row < end; row += 4)
      for (int a = 0; a < 4; ++a) {
        low[a] = std::min(low[a], row[a]);
        high[a] = std::max(high[a], row[a]);
      }
    for (int a = 0; a < 4; ++a) {
      ends[c * 8 + a] = low[a];
      ends[c * 8 + 4 + a] = high[a];
    }
  });
  int bits = 0;
  for (int a = 3; a >= 0; --a) {
    int64_t low = ends[a], high = ends[4 + a];
    for (int64_t c = 1; c < chunks; ++c) {
      low = std::min<int64_t>(low, ends[c * 8 + a]);
      high = std::max<int64_t>(high, ends[c * 8 + 4 + a]);
    }
    low_[a] = a ? low - kSide : low;
    shift_[a] = bits;
    bits += log2_ceil(a ? (high - low_[a]) / kSide + 2 : high - low + 1);
  }
  return bits < 64;
}

bool Bricks::enter_parts(int32_t threads, int64_t parts) {
  std::atomic<bool> good{true};
  made_.store(1, std::memory_order_relaxed);
  const int64_t part = ceil_div(n_, parts);
  parallel_for(threads, parts, [&](int64_t p) {
    const int64_t begin = p * part, end = std::min(n_, begin + part);
    Slots slots(parts == 1 ? n_ : end - begin);
    if (!enter(slots, begin, end)) good.store(false, std::memory_order_relaxed);
    if (parts == 1) slots_ = std::move(slots);
  });
  if (parts == 1 || !good.load(std::memory_order_relaxed))
    return good.load(std::memory_order_relaxed);
  slots_ = Slots(n_);
  const int64_t made = made_.load(std::memory_order_relaxed);
  moved_ = Buffer<int32_t>(made);
  parallel_for(threads, ceil_div(made, kBricks), [&](int64_t c) {
    for (int64_t b = c * kBricks, e = std::min(made, b + kBricks); b < e; ++b) {
      moved_[b] = static_cast<int32_t>(b);
      if (keys_[b] != kNoKey && !join(b)) good.store(false, std::memory_order_relaxed);
    }
  });
  return good.load(std::memory_order_relaxed);
}

bool Bricks::enter(Slots& slots, int64_t begin, int64_t end) {
  Taken taken;
  for (int64_t row = begin; row < end; row += kRows) {
    // Runs of rows of one brick: runs are looked up.
    uint64_t key[kRows];
    uint32_t brick[kRows];
    uint8_t run_of[kRows];
    int runs = 0;
    const int64_t m = std::min(kRows, end - row);
    for (int64_t r = 0; r < m; ++r) {
      const Place p = place(row + r);
      runs += r > 0 && p.key != key[runs];
      key[runs] = p.key;
      run_of[r] = static_cast<uint8_t>(runs);
      cell_of_[row + r] = static_cast<uint16_t>(p.cell);
    }
    ++runs;
    for (int i = 0; i < runs; ++i) __builtin_prefetch(&slots.words[home(slots, hash(key[i]))]);
    for (int i = 0; i < runs; ++i) {
      const uint32_t v = slots.words[home(slots, hash(key[i]))] & ~tag_mask_;
      __builtin_prefetch(&keys_[v]);
      __builtin_prefetch(words_[v]);
    }
    for (int i = 0; i < runs; ++i) {
      brick[i] = find_or_make(slots, key[i], taken);
      if (brick[i] == 0) return false;
    }
    uint64_t twice = 0;
    for (int64_t r = 0; r < m; ++r) {
      const uint32_t own = brick[run_of[r]];
      brick_of_[row + r] = static_cast<int32_t>(own);
      const int cell = cell_of_[row + r];
      uint64_t& word = words_[own][cell / kWord];
      const uint64_t bit = uint64_t(1) << cell % kWord;
      twice |= word & bit;
      word |= bit;
    }
    if (twice) return false;
  }
  return true;
}

uint32_t Bricks::find_or_make(Slots& slots, uint64_t key, Taken& taken) {
  const uint64_t h = hash(key);
  int64_t s = home(slots, h);
  for (; slots.words[s] != kFree; s = next(slots, s))
    if (names(slots.words[s], h, key)) return slots.words[s] & ~tag_mask_;
  if (taken.next == taken.end) {
    taken.next = made_.fetch_add(kTaken, std::memory_order_relaxed);
    taken.end = taken.next + kTaken;
    if (taken.end > most_) return 0;
    memset(words_[taken.next], 0, sizeof(Words) * kTaken);
    std::fill(&keys_[taken.next], &keys_[taken.next] + kTaken, kNoKey);
  }
  const auto brick = static_cast<uint32_t>(taken.next++);
  keys_[brick] = key;
  slots.words[s] = tag(h) | brick;
  return brick;
}

bool Bricks::join(int64_t brick) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && sizeof(std::atomic<uint64_t>) == 8,
                "slots and words are plain but here");
  auto* slots = reinterpret_cast<std::atomic<uint32_t>*>(slots_.words.data());
  const uint64_t h = hash(keys_[brick]);
  for (int64_t s = home(slots_, h);; s = next(slots_, s)) {
    uint32_t v = slots[s].load(std::memory_order_relaxed);
    if (v == kFree && slots[s].compare_exchange_strong(v, tag(h) | static_cast<uint32_t>(brick),
                                                       std::memory_order_relaxed))
      return true;
    if (!names(v, h, keys_[brick])) continue;
    moved_[brick] = static_cast<int32_t>(v & ~tag_mask_);
    auto* to = reinterpret_cast<std::atomic<uint64_t>*>(words_[moved_[brick]]);
    for (int plane = 0; plane < kSide; ++plane) {
      uint64_t& sites = words_[brick][plane];
      if (sites && to[plane].fetch_or(sites, std::memory_order_relaxed) & sites) return false;
      sites = 0;
    }
    return true;
  }
}

void Bricks::number(int32_t threads) {
  const int64_t bricks = made_.load(std::memory_order_relaxed);
  first_ = Buffer<int32_t>(bricks * kSide);
  row_at_ = Buffer<int32_t>(n_);
  Buffer<int64_t> start(ceil_div(bricks, kBricks));
  parallel_for(threads, start.size(), [&](int64_t c) {
    int32_t rows = 0;
    for (int64_t b = c * kBricks, e = std::min(bricks, b + kBricks); b < e; ++b)
      for (int plane = 0; plane < kSide; ++plane) {
        first_[b * kSide + plane] = rows;
        rows += count_bits(words_[b][plane]);
      }
    start[c] = rows;
  });
  prefix_sums(start.data(), start.size());
  parallel_for(threads, start.size(), [&](int64_t c) {
    const auto by = static_cast<int32_t>(start[c]);
    for (int64_t i = c * kBricks * kSide, e = std::min(bricks, (c + 1) * kBricks) * kSide; i < e;
         ++i)
      first_[i] += by;
  });
  // Threads go on far from each other: the rows of near ones lie together.
  const int64_t ways = std::max(1, threads), stretch = ceil_div(chunk_count(n_), ways);
  parallel_for(threads, ways * stretch, [&](int64_t item) {
    const int64_t c = item % ways * stretch + item / ways;
    for (int64_t i = c * kChunk, e = std::min(n_, i + kChunk); i < e; i += kRows) {
      const int64_t end = std::min(e, i + kRows);
      for (int64_t r = i; r < end; ++r) {
        if (moved_.size()) brick_of_[r] = moved_[brick_of_[r]];
        fetch_words(brick_of_[r]);
      }
      for (int64_t r = i; r < end; ++r)
        row_at_[position(brick_of_[r], cell_of_[r] / kWord, cell_of_[r] % kWord)] =
            static_cast<int32_t>(r);
    }
  });
}

}  // namespace s3d
