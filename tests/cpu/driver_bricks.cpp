// Bricks and the maps found in them, with no Python in the process: what the sanitizers and an
// emulator run.
//   driver_bricks [rows of the large cases; fewer than 16384 have one part]
// Which scenes bricks serve, that every row is found in its place, and that a submanifold map
// equals the one looked up in a table, on 1, 2, 3 and 8 threads.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "../../sparse3d/cpu/csrc/abi.h"
#include "../../sparse3d/cpu/csrc/bricks.h"

namespace {

using Ints = std::vector<int32_t>;

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::exit(1);
}

void add(Ints& coords, int64_t batch, int64_t a, int64_t b, int64_t c) {
  for (const int64_t v : {batch, a, b, c}) coords.push_back(static_cast<int32_t>(v));
}
int64_t rows_of(const Ints& coords) { return static_cast<int64_t>(coords.size()) / 4; }

// So many rows of a box of side^2 lines, row-major.
Ints box(int64_t rows, int64_t side, int64_t spacing) {
  Ints coords;
  for (int64_t i = 0; i < rows; ++i)
    add(coords, 0, i / (side * side) * spacing - 9, i / side % side * spacing - 9,
        i % side * spacing - 9);
  return coords;
}
Ints shuffled(const Ints& coords) {
  std::vector<int64_t> order(static_cast<size_t>(rows_of(coords)));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::mt19937 random(1);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  Ints out;
  for (const int64_t row : order)
    out.insert(out.end(), coords.begin() + row * 4, coords.begin() + row * 4 + 4);
  return out;
}
// First the even sites, then the odd ones: both parts of the rows meet every brick.
Ints in_two_rounds(const Ints& coords) {
  Ints out;
  for (const int round : {0, 1})
    for (int64_t i = 0; i < rows_of(coords); ++i) {
      const int32_t* c = coords.data() + i * 4;
      if (((c[1] + c[2] + c[3]) & 1) == round) out.insert(out.end(), c, c + 4);
    }
  return out;
}
// Sites at both ends of three axes of `bricks` bricks, the empty ones around among them.
Ints far_apart(int64_t bricks, int64_t batches) {
  Ints coords;
  const int64_t far = (bricks - 3) * 8 + 7;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (const int64_t at : {int64_t(0), int64_t(1), far - 1, far}) add(coords, batch, at, at, at);
  return coords;
}

void serve(const Ints& coords, bool wanted, const char* what) {
  const int64_t n = rows_of(coords);
  for (const int32_t threads : {1, 2, 3, 8}) {
    s3d::Bricks bricks(coords.data(), n);
    require(bricks.build(threads) == wanted, what);
    for (int64_t i = 0; wanted && i < n; ++i) {
      const int cell = bricks.cell_of(i);
      require(bricks.row(bricks.brick_of(i), cell / 64, cell % 64) == i, what);
      require(bricks.find(bricks.key(i)) == bricks.brick_of(i), what);
    }
  }
}

struct Map {
  Ints src, dst;
  std::vector<int64_t> splits;
  bool operator==(const Map& o) const { return src == o.src && dst == o.dst && splits == o.splits; }
};

Map take(int32_t threads, void* handle, int64_t taps) {
  int64_t pairs, rows;
  s3d_map_sizes(handle, &pairs, &rows);
  Map m;
  m.src.resize(static_cast<size_t>(pairs));
  m.dst.resize(static_cast<size_t>(pairs));
  m.splits.resize(static_cast<size_t>(taps + 1));
  require(s3d_map_take(threads, handle, nullptr, m.src.data(), m.dst.data(), m.splits.data()) ==
              s3d::kOk,
          "take");
  return m;
}

void same_map(const Ints& coords, const int64_t (&kernel)[3], const int64_t (&dilation)[3]) {
  const int64_t n = rows_of(coords), taps = kernel[0] * kernel[1] * kernel[2];
  const int64_t stride[3] = {1, 1, 1};
  int64_t padding[3];
  for (int a = 0; a < 3; ++a) padding[a] = dilation[a] * (kernel[a] / 2);
  Ints table(static_cast<size_t>(s3d_table_words(n)));
  require(s3d_coordinate_table(1, coords.data(), n, 3, table.data()) == s3d::kOk, "table");
  void* handle;
  require(s3d_map_given(1, 0, coords.data(), n, 3, table.data(), coords.data(), n, kernel, stride,
                        padding, dilation, &handle) == s3d::kOk,
          "given");
  const Map wanted = take(1, handle, taps);
  for (const int32_t threads : {1, 2, 3, 8})
    for (int32_t* at_hand : {static_cast<int32_t*>(nullptr), table.data()}) {
      require(s3d_map_submanifold(threads, 0, coords.data(), n, 3, at_hand, kernel, dilation,
                                  &handle) == s3d::kOk,
              "submanifold");
      require(take(threads, handle, taps) == wanted, "submanifold map");
    }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t many = argc > 1 ? std::atoll(argv[1]) : 20000;
  Ints twice = box(many, 40, 1), late = box(200, 6, 1);
  add(twice, 0, -9, -9, -9);
  late.insert(late.end(), late.end() - 4, late.end());
  serve({}, false, "no rows");
  serve(box(1, 1, 1), true, "one row");
  serve(box(2000, 40, 1), true, "a box");
  serve(late, false, "a row at once again");
  serve(twice, false, "a row again in another part");
  serve(box(90, 16, 9), true, "a brick a row, of few");
  serve(box(400, 16, 9), false, "a brick a row");
  serve(far_apart(1 << 21, 1), true, "keys of 63 bits");
  serve(far_apart((1 << 21) + 1, 1), false, "keys of 66 bits");
  serve(far_apart(1 << 21, 2), false, "keys of 64 bits");
  const Ints large = box(many, 40, 1);
  serve(large, true, "a large box");
  serve(shuffled(large), true, "rows in no order");
  serve(in_two_rounds(large), true, "parts that share bricks");
  serve(in_two_rounds(box(many, 40, 4)), true, "parts of too many bricks");
  same_map(shuffled(large), {3, 3, 3}, {1, 1, 1});
  same_map(in_two_rounds(large), {1, 3, 3}, {1, 2, 1});
  same_map(shuffled(box(3000, 16, 1)), {5, 3, 3}, {2, 8, 8});
  same_map(box(3000, 16, 3), {3, 3, 3}, {1, 3, 9});
  same_map(twice, {3, 1, 1}, {1, 1, 1});
  std::printf("bricks: all equal\n");
  return 0;
}
