// The C ABI: everything that sparse3d/cpu/_library.py calls. Functions that return int32_t return a
// status of common.h. Coordinates are int32 [n, 1 + ndim], the batch first; kernel, stride, padding
// and dilation hold ndim entries; a map's pairs are grouped by tap, splits [taps + 1].
#pragma once

#include "common.h"
#include "conv.h"
#include "norm.h"

// coordinates.cpp
S3D_API int32_t s3d_abi_version();
S3D_API int64_t s3d_table_words(int64_t n);
S3D_API int32_t s3d_coordinate_table(int32_t threads, const int32_t* coords, int64_t n,
                                     int32_t ndim, int32_t* table);
S3D_API int32_t s3d_coordinate_lookup(int32_t threads, const int32_t* coords, int64_t n,
                                      int32_t ndim, int32_t* table, const int32_t* queries,
                                      int64_t count, int32_t* out);
// first and inverse have room for n entries; *count of first are written.
S3D_API int32_t s3d_coordinate_unique(int32_t threads, const int32_t* coords, int64_t n,
                                      int32_t ndim, int64_t* first, int64_t* inverse,
                                      int64_t* count);

// dispatch.cpp
// Bit p: path p works on this machine.
S3D_API int32_t s3d_paths();
// The path taken when none is asked for.
S3D_API int32_t s3d_default_path();

// kernel_map.cpp
// table may be null: it is made if the search needs one.
S3D_API int32_t s3d_map_submanifold(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                                    int32_t ndim, int32_t* table, const int64_t* kernel,
                                    const int64_t* dilation, void** handle);
S3D_API int32_t s3d_map_given(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                              int32_t ndim, int32_t* table, const int32_t* out_coords,
                              int64_t rows_out, const int64_t* kernel, const int64_t* stride,
                              const int64_t* padding, const int64_t* dilation, void** handle);
// shape null: no grid. transposed: q = p*stride - padding + t*dilation (generative).
S3D_API int32_t s3d_map_footprint(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                                  int32_t ndim, const int64_t* kernel, const int64_t* stride,
                                  const int64_t* padding, const int64_t* dilation,
                                  const int64_t* shape, int32_t transposed, void** handle);
S3D_API int32_t s3d_map_floor(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                              int32_t ndim, int32_t* table, const int64_t* kernel,
                              const int64_t* stride, const int64_t* padding,
                              const int64_t* dilation, void** handle);
S3D_API void s3d_map_sizes(const void* handle, int64_t* pairs, int64_t* rows_out);
// Writes the map and frees the handle. out_coords may be null.
S3D_API int32_t s3d_map_take(int32_t threads, void* handle, int32_t* out_coords, int32_t* src,
                             int32_t* dst, int64_t* splits);
S3D_API void s3d_map_free(void* handle);

// pairs.cpp
// header: int64 [2], see pairs.h. Accumulation goes into dst.
S3D_API int32_t s3d_pairs_inspect(int32_t threads, const int32_t* src, const int32_t* dst,
                                  const int64_t* splits, int64_t taps, int64_t num_in,
                                  int64_t num_out, int32_t mirrored, int64_t* header);
// The pairs of each tap by dst, pairs of equal dst in their old order.
S3D_API int32_t s3d_pairs_sort(int32_t threads, const int32_t* src, const int32_t* dst,
                               const int64_t* splits, int64_t taps, int64_t num_out,
                               int32_t* sorted_src, int32_t* sorted_dst);

// conv.cpp
S3D_API int32_t s3d_conv(const s3d::ConvCall* call);

// conv_weight_grad.cpp
S3D_API int32_t s3d_conv_weight_grad(const s3d::WeightGradCall* call);

// pool.cpp
// Pairs sorted by dst in every tap.
S3D_API int32_t s3d_pool_sum(int32_t threads, int32_t dtype, const void* x, int64_t channels,
                             const int32_t* src, const int32_t* dst, const int64_t* splits,
                             int64_t taps, int64_t rows_out, void* y);
S3D_API int32_t s3d_pool_max(int32_t threads, int32_t dtype, const void* x, int64_t channels,
                             const int32_t* src, const int32_t* dst, const int64_t* splits,
                             int64_t taps, int64_t rows_out, void* y, int32_t* arg);
S3D_API int32_t s3d_pool_max_grad(int32_t threads, int32_t dtype, const void* grad,
                                  const int32_t* arg, int64_t rows_out, int64_t channels,
                                  int64_t rows_in, void* dx);

// segment.cpp
S3D_API int32_t s3d_segment_sum(int32_t threads, int32_t dtype, const void* values,
                                int64_t channels, const int64_t* ids, int64_t n, int64_t num,
                                void* out);
S3D_API int32_t s3d_segment_max(int32_t threads, int32_t dtype, const void* values,
                                int64_t channels, const int64_t* ids, int64_t n, int64_t num,
                                void* out, int64_t* arg);

// norm.cpp
S3D_API int32_t s3d_norm_train(const s3d::NormCall* call);
// The rows of s3d_norm_train once more, from its mean and var.
S3D_API int32_t s3d_norm_apply(const s3d::NormCall* call);
S3D_API int32_t s3d_norm_grad(const s3d::NormCall* call);

// voxelize.cpp
S3D_API int32_t s3d_trilinear_map(int32_t threads, int32_t dtype, const int32_t* coords, int64_t n,
                                  int32_t ndim, int32_t* table, const void* points, int64_t count,
                                  int32_t* rows, void* weights);
S3D_API int32_t s3d_interpolate(int32_t threads, int32_t dtype, int32_t weight_dtype, const void* x,
                                int64_t channels, const int32_t* rows, const void* weights,
                                int64_t n, int64_t corners, void* y);
// dx[r] = sum over (point, corner) with rows = r, ascending, of weights * grad[point].
S3D_API int32_t s3d_interpolate_grad(int32_t threads, int32_t dtype, int32_t weight_dtype,
                                     const void* grad, int64_t channels, const int32_t* rows,
                                     const void* weights, int64_t n, int64_t corners, int64_t num,
                                     void* dx);

// dense.cpp
// dense is cleared here; of rows with equal coordinates the lowest is written. row_bytes: of one
// row.
S3D_API int32_t s3d_dense_scatter(int32_t threads, const void* x, int64_t row_bytes,
                                  const int32_t* coords, int64_t n, int32_t ndim, int64_t batches,
                                  const int64_t* shape, void* dense);
S3D_API int32_t s3d_dense_gather(int32_t threads, const void* dense, int64_t row_bytes,
                                 const int32_t* coords, int64_t n, int32_t ndim, int64_t batches,
                                 const int64_t* shape, void* y);
