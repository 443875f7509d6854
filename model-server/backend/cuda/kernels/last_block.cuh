/* last_block.cuh - final work of a kernel without another launch: the last of its blocks does
 * it. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_LAST_BLOCK_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_LAST_BLOCK_CUH
#include "model-server/backend/cuda/kernels/device.cuh"

/* True if this block is the last of `n` blocks to arrive at a counter, which is 0 before and
 * after. Then it sees all their earlier writes to global memory. All threads of the block call
 * it. `word`: shared memory that nothing else accesses before the block's next barrier. */
static __device__ __forceinline__ bool last_block(uint32_t *ticket, uint32_t n, uint32_t *word)
{
    __threadfence();
    __syncthreads(); /* all threads' writes, each before its fence */
    if (threadIdx.x == 0) {
        *word = atomicAdd(ticket, 1u);
        if (*word == n - 1)
            *ticket = 0; /* for the next kernel, which waits for this one */
    }
    __syncthreads();
    const bool last = *word == n - 1;
    if (last)
        __threadfence();
    return last;
}
#endif
