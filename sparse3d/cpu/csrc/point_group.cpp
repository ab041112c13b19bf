// Gather and interpolate columns of channel-first feature maps.
#include "common.h"
#include "thread_pool.h"

namespace s3d {
namespace {

template <class T>
void gather(const T* features, const int64_t* idx, int64_t batch, int64_t channels, int64_t columns,
            int64_t places, int32_t threads, T* out) {
  parallel_for(threads, batch * channels, [&](int64_t line) {
    const T* from = features + line * columns;
    const int64_t* at = idx + line / channels * places;
    T* to = out + line * places;
    for (int64_t i = 0; i < places; ++i) to[i] = at[i] >= 0 ? from[at[i]] : T(0);
  });
}

// (w0 f0 + w1 f1) + w2 f2, each operation rounded on its own.
template <class T>
void interpolate(const T* features, const int64_t* idx, const T* weight, int64_t batch,
                 int64_t channels, int64_t columns, int64_t places, int32_t threads, T* out) {
  parallel_for(threads, batch * channels, [&](int64_t line) {
    const T* from = features + line * columns;
    const int64_t* at = idx + line / channels * places * 3;
    const T* w = weight + line / channels * places * 3;
    T* to = out + line * places;
    for (int64_t i = 0; i < places; ++i) {
      const T a = from[at[3 * i]] * w[3 * i], b = from[at[3 * i + 1]] * w[3 * i + 1];
      to[i] = (a + b) + from[at[3 * i + 2]] * w[3 * i + 2];
    }
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_gather_columns(int32_t item, const void* features, const int64_t* idx,
                                   int64_t batch, int64_t channels, int64_t columns, int64_t places,
                                   int32_t threads, void* out) {
  return guarded([&] {
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      gather(static_cast<const T*>(features), idx, batch, channels, columns, places, threads,
             static_cast<T*>(out));
    };
    switch (item) {
      case 2:
        return run(uint16_t{});
      case 4:
        return run(uint32_t{});
      case 8:
        return run(uint64_t{});
      default:
        throw BadArgument{};
    }
  });
}

S3D_API int32_t s3d_interpolate_columns(int32_t dtype, const void* features, const int64_t* idx,
                                        const void* weight, int64_t batch, int64_t channels,
                                        int64_t columns, int64_t places, int32_t threads,
                                        void* out) {
  return guarded([&] {
    if (dtype == kFloat32) {
      interpolate(static_cast<const float*>(features), idx, static_cast<const float*>(weight),
                  batch, channels, columns, places, threads, static_cast<float*>(out));
    } else if (dtype == kFloat64) {
      interpolate(static_cast<const double*>(features), idx, static_cast<const double*>(weight),
                  batch, channels, columns, places, threads, static_cast<double*>(out));
    } else {
      throw BadArgument{};
    }
  });
}
