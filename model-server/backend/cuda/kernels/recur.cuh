/* recur.cuh - what the kernels of recurrent layers share: state.cu and rwkv.cu. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_RECUR_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_RECUR_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

/* True of the first tokens of a sequence, whose state is zero. */
static __device__ __forceinline__ bool at_start(const span_view &s) { return s.kv_len == s.n; }

/* Values that a block takes: their states, of key_dim numbers each, fit 32 KiB of shared memory. */
static inline uint32_t values_at_once(uint32_t key_dim) { return key_dim <= 256 ? 32 : 8; }

#endif
