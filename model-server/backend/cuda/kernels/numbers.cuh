/* numbers.cuh - the numbers and functions of backend/{numbers,mathf}.h on the device.
 *
 * They are plain C with explicit fused multiply-adds; compiled without contraction (-fmad=false)
 * they give the same bits as on the CPU. The headers are shared: only the word `inline` is
 * redefined while they are included, after everything that they include. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_NUMBERS_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_NUMBERS_CUH
#include "model-server/backend/backend.h"
#include <cuda_runtime.h>
#include <math.h>
#include <string.h>
#define inline __host__ __device__ inline
#include "model-server/backend/mathf.h"
#undef inline
#endif
