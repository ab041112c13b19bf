// Batch normalisation in training, ReLU and a residual before it included. Sums run over chunks of
// 512 rows, which are added in order; a chunk is centred by a mean of its own while it lies in the
// cache, so that mean and variance take one pass over memory.
#include "norm.h"

#include <cmath>
#include <type_traits>

#include "abi.h"
#include "dispatch.h"
#include "half.h"
#include "thread_pool.h"

namespace s3d {
namespace {

constexpr int64_t kRows = 512;

template <class T>
const NormKernels<T>& norm_of(const Kernels& k);
template <>
const NormKernels<float>& norm_of<float>(const Kernels& k) {
  return k.norm32;
}
template <>
const NormKernels<double>& norm_of<double>(const Kernels& k) {
  return k.norm64;
}

template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}

// Rows of a chunk in the type of the sums: in place, or in a buffer that a half type is widened
// into and rounded from.
template <class E>
class Chunk {
 public:
  using T = typename SumType<E>::type;
  static constexpr bool kWide = std::is_same<E, T>::value;

  Chunk(const Kernels& kernels, int64_t begin, int64_t rows, int64_t channels)
      : kernels_(kernels), begin_(begin * channels), size_(rows * channels) {}

  const T* read(const void* from, Buffer<T>* room) const {
    if (!from) return nullptr;
    const E* x = as<E>(from) + begin_;
    if constexpr (kWide) {
      return x;
    } else {
      if (!room->size()) *room = Buffer<T>(size_);
      kernels_.widen(reinterpret_cast<const uint16_t*>(x), size_, kHalf, room->data());
      return room->data();
    }
  }
  T* target(void* to, Buffer<T>* room) const {
    if constexpr (kWide) {
      return to ? as<E>(to) + begin_ : nullptr;
    } else {
      if (to && !room->size()) *room = Buffer<T>(size_);
      return to ? room->data() : nullptr;
    }
  }
  // Rounds what `target` gave.
  void write(void* to, const Buffer<T>& room) const {
    if constexpr (!kWide)
      if (to)
        kernels_.narrow(room.data(), size_, kHalf, reinterpret_cast<uint16_t*>(as<E>(to) + begin_));
  }
  // What rounding leaves of the values.
  void round(Buffer<T>* room) const {
    if constexpr (!kWide) {
      Buffer<uint16_t> narrow(size_);
      kernels_.narrow(room->data(), size_, kHalf, narrow.data());
      kernels_.widen(narrow.data(), size_, kHalf, room->data());
    }
  }

 private:
  static constexpr bool kHalf = std::is_same<E, Float16>::value;
  const Kernels& kernels_;
  int64_t begin_, size_;
};

template <class E, class F>
void each_chunk(const NormCall& c, const Kernels& kernels, const F& f) {
  using T = typename SumType<E>::type;
  parallel_for(c.threads, ceil_div(c.rows, kRows), [&](int64_t chunk) {
    NormRows<T> j{};
    j.rows = std::min(c.rows - chunk * kRows, kRows);
    j.columns = c.channels;
    f(chunk, j, Chunk<E>(kernels, chunk * kRows, j.rows, c.channels));
  });
}

// What a norm does to centred rows.
template <class T>
struct Factors {
  Buffer<T> scale, shift;

  Factors(const NormCall& c, const T* var) : scale(c.channels), shift(c.channels) {
    for (int64_t i = 0; i < c.channels; ++i) {
      scale[i] = T(1 / std::sqrt(double(var[i]) + c.eps));
      if (c.weight) scale[i] *= as<T>(c.weight)[i];
      shift[i] = c.bias ? as<T>(c.bias)[i] : T(0);
    }
  }
};

template <class E>
void statistics(const NormCall& c, const Kernels& kernels) {
  using T = typename SumType<E>::type;
  const int64_t channels = c.channels, chunks = ceil_div(c.rows, kRows);
  Buffer<T> parts(3 * chunks * channels);  // of each chunk: centre, sums, sums of squares
  each_chunk<E>(c, kernels, [&](int64_t chunk, NormRows<T>& j, const Chunk<E>& rows) {
    Buffer<T> room;
    T* centre = parts.data() + 3 * chunk * channels;
    j.x = rows.read(c.x, &room);
    j.first = centre;
    norm_of<T>(kernels).sum(j);
    for (int64_t i = 0; i < channels; ++i) centre[i] /= T(j.rows);
    j.mean = centre;
    j.first = centre + channels;
    j.second = centre + 2 * channels;
    norm_of<T>(kernels).centred(j);
  });
  const double count = double(std::max<int64_t>(c.rows, 1));
  for (int64_t i = 0; i < channels; ++i) {
    double total = 0, spread = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const T* part = parts.data() + 3 * chunk * channels + i;
      const auto rows = double(std::min(c.rows - chunk * kRows, kRows));
      total += rows * double(part[0]) + double(part[channels]);
    }
    const double mean = total / count;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const T* part = parts.data() + 3 * chunk * channels + i;
      const auto rows = double(std::min(c.rows - chunk * kRows, kRows));
      const double apart = double(part[0]) - mean;
      spread += double(part[2 * channels]) + apart * (2 * double(part[channels]) + rows * apart);
    }
    as<T>(c.mean)[i] = T(mean);
    as<T>(c.var)[i] = T(spread < 0 ? 0.0 : spread / count);
  }
}

template <class E>
void apply(const NormCall& c, const Kernels& kernels) {
  using T = typename SumType<E>::type;
  const Factors<T> factors(c, as<T>(c.var));
  each_chunk<E>(c, kernels, [&](int64_t, NormRows<T>& j, const Chunk<E>& rows) {
    Buffer<T> room, side;
    j.x = rows.read(c.x, &room);
    j.mean = as<T>(c.mean);
    j.scale = factors.scale.data();
    j.shift = factors.shift.data();
    j.relu = c.relu;
    j.y = rows.target(c.y, &room);
    j.side = rows.read(c.side, &side);
    if (Chunk<E>::kWide || !j.side) {
      norm_of<T>(kernels).apply(j);
    } else if constexpr (!Chunk<E>::kWide) {  // rounded before the sum too, as without fusion
      const T* added = j.side;
      j.side = nullptr;
      j.relu = false;
      norm_of<T>(kernels).apply(j);
      rows.round(&room);
      kernels.f32.finish({room.data(), c.channels, j.rows, c.channels, nullptr, nullptr, added,
                          c.channels, c.relu ? kRelu : kNone, 0.0f});
    }
    rows.write(c.y, room);
  });
}

template <class E>
void gradients(const NormCall& c, const Kernels& kernels) {
  using T = typename SumType<E>::type;
  const int64_t channels = c.channels, chunks = ceil_div(c.rows, kRows);
  const NormKernels<T>& norm = norm_of<T>(kernels);
  const Factors<T> factors(c, as<T>(c.var));
  struct Rooms {
    Buffer<T> x, grad, side;
  };
  // Points at a chunk's rows. The norm that masks is the rounded one.
  const auto place = [&](const Chunk<E>& rows, NormRows<T>& j, Rooms* rooms) {
    j.x = rows.read(c.x, &rooms->x);
    j.mean = as<T>(c.mean);
    j.scale = factors.scale.data();
    j.shift = factors.shift.data();
    j.relu = c.relu;
    if (Chunk<E>::kWide || c.side || !c.relu) {
      j.side = rows.read(c.side, &rooms->side);
      return;
    }
    rooms->side = Buffer<T>(j.rows * j.columns);
    j.y = rooms->side.data();
    norm.apply(j);
    rows.round(&rooms->side);
    j.side = j.y;
  };

  Buffer<T> parts(2 * chunks * channels);
  each_chunk<E>(c, kernels, [&](int64_t chunk, NormRows<T>& j, const Chunk<E>& rows) {
    Rooms rooms;
    place(rows, j, &rooms);
    j.grad = rows.read(c.grad, &rooms.grad);
    j.first = parts.data() + 2 * chunk * channels;
    j.second = j.first + channels;
    j.y = rows.target(c.dside, &rooms.grad);
    norm.grad_sums(j);
    rows.write(c.dside, rooms.grad);
  });

  const double count = double(std::max<int64_t>(c.rows, 1));
  Buffer<T> offset(channels), slope(channels);
  for (int64_t i = 0; i < channels; ++i) {
    double plain = 0, weighted = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      plain += double(parts[2 * chunk * channels + i]);
      weighted += double(parts[(2 * chunk + 1) * channels + i]);
    }
    const double unit = 1 / std::sqrt(double(as<T>(c.var)[i]) + c.eps);
    as<T>(c.dbias)[i] = T(plain);
    as<T>(c.dweight)[i] = T(weighted * unit);
    offset[i] = T(plain / count);
    slope[i] = T(weighted * unit * unit / count);
  }

  each_chunk<E>(c, kernels, [&](int64_t, NormRows<T>& j, const Chunk<E>& rows) {
    Rooms rooms;
    if (c.dside) {  // masked already
      j.x = rows.read(c.x, &rooms.x);
      j.mean = as<T>(c.mean);
      j.grad = rows.read(c.dside, &rooms.grad);
    } else {
      place(rows, j, &rooms);
      j.grad = rows.read(c.grad, &rooms.grad);
    }
    j.offset = offset.data();
    j.slope = slope.data();
    j.factor = factors.scale.data();
    j.y = rows.target(c.y, &rooms.x);
    norm.grad_apply(j);
    rows.write(c.y, rooms.x);
  });
}

template <class F>
int32_t run(const NormCall& c, const F& f) {
  return guarded([&] {
    const Kernels& kernels = kernels_of(resolve_path(c.path));
    prefer_huge_pages(c.y, static_cast<size_t>(c.rows * c.channels * element_size(c.dtype)));
    with_dtype(c.dtype, [&](auto e) { f(e, kernels); });
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_norm_train(const NormCall* call) {
  return run(*call, [&](auto e, const Kernels& kernels) {
    statistics<typename decltype(e)::type>(*call, kernels);
    apply<typename decltype(e)::type>(*call, kernels);
  });
}

S3D_API int32_t s3d_norm_apply(const NormCall* call) {
  return run(*call, [&](auto e, const Kernels& kernels) {
    apply<typename decltype(e)::type>(*call, kernels);
  });
}

S3D_API int32_t s3d_norm_grad(const NormCall* call) {
  return run(*call, [&](auto e, const Kernels& kernels) {
    gradients<typename decltype(e)::type>(*call, kernels);
  });
}
