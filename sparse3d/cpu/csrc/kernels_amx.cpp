#include "dispatch.h"
namespace s3d {
const AmxKernels* amx_kernels() { return nullptr; }
}  // namespace s3d
