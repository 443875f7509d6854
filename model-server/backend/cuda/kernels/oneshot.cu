/* oneshot.cu - a sum over ranks in one kernel: every rank writes its data into the memory of
 * every other rank, then adds what it received, in rank order.
 *
 * A block handles ONESHOT_CHUNK elements of the message and its own part of the region, so blocks
 * never wait for each other. The n-th call with block b is its epoch n, the same number on all
 * ranks. It is counted in the region, because a replayed graph has no arguments. Data is written
 * to half n % 2 of the block's slots, then the epoch to its flag (release); the reader waits for
 * that flag (acquire). With two halves no closing barrier is needed: a rank that writes epoch n +
 * 2 has seen every flag of n + 1, and those flags were written after the kernel that read epoch n
 * had ended.
 *
 * Region: epochs [blocks], `gone`, flags [blocks][ONESHOT_RANKS], slots
 * [blocks][2][world][chunk]. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

enum { THREADS = ONESHOT_CHUNK / 4, PATIENCE_POLLS = 64 };

static __device__ __forceinline__ uint32_t *epoch_of(char *region, uint32_t block)
{
    return (uint32_t *)region + block;
}
static __device__ __forceinline__ uint32_t *gone_of(const oneshot_args &a)
{
    return (uint32_t *)a.peers[a.rank] + a.blocks;
}
static __device__ __forceinline__ uint32_t *flag_of(const oneshot_args &a, uint32_t region,
                                                    uint32_t from)
{
    return (uint32_t *)(a.peers[region] + oneshot_flags(a.blocks)) + blockIdx.x * ONESHOT_RANKS +
           from;
}
static __device__ __forceinline__ float *slot_of(const oneshot_args &a, uint32_t region,
                                                 uint32_t half, uint32_t from)
{
    return (float *)(a.peers[region] + oneshot_slots(a.blocks)) +
           ((size_t)(blockIdx.x * 2 + half) * a.world + from) * ONESHOT_CHUNK + threadIdx.x * 4;
}

/* True: rank r's data of this epoch has arrived. False: the host says stop, or it took too long,
 * now or in an earlier kernel. */
static __device__ __forceinline__ bool wait_for(const oneshot_args &a, uint32_t r, uint32_t epoch)
{
    const uint32_t *flag = flag_of(a, a.rank, r);
    uint64_t start = 0;
    for (uint32_t polls = 1; (int32_t)(load_acquire(flag) - epoch) < 0; polls++) {
        if (polls % PATIENCE_POLLS)
            continue;
        if (load_acquire(gone_of(a)) || load_acquire(a.words + ONESHOT_STOP))
            return false;
        start = start ? start : device_ns();
        if (device_ns() - start > a.patience_ns) {
            store_release(a.words + ONESHOT_MISSING, r + 1);
            store_release(gone_of(a), 1);
            return false;
        }
    }
    return true;
}

static __global__ void __launch_bounds__(THREADS)
    oneshot_kernel(const __grid_constant__ oneshot_args a)
{
    uint32_t *lost = dynamic_shared<uint32_t>();
    const size_t at = (size_t)blockIdx.x * ONESHOT_CHUNK + threadIdx.x * 4;
    const bool has = at < a.n;
    float4 mine = {0, 0, 0, 0};
    depend();
    const uint32_t epoch = *epoch_of(a.peers[a.rank], blockIdx.x) + 1, half = epoch % 2;
    if (threadIdx.x == 0)
        *lost = 0;
    if (has) {
        mine = *(const float4 *)(a.x + at);
        for (uint32_t i = 1; i < a.world; i++) /* not all to the same rank at a time */
            store_peer(slot_of(a, (a.rank + i) % a.world, half, a.rank), mine);
    }
    __syncthreads();
    if (threadIdx.x < a.world && threadIdx.x != a.rank) {
        store_release(flag_of(a, threadIdx.x, a.rank), epoch);
        if (!wait_for(a, threadIdx.x, epoch))
            *lost = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        *epoch_of(a.peers[a.rank], blockIdx.x) = epoch;
    if (!has || *lost)
        return;
    float4 sum = {0, 0, 0, 0};
    for (uint32_t r = 0; r < a.world; r++) {
        float4 v = r == a.rank ? mine : load_peer(slot_of(a, a.rank, half, r));
        if (r == 0) {
            sum = v;
            continue;
        }
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    *(float4 *)(a.x + at) = sum;
}

extern "C" cudaError_t oneshot_launch(const struct launch *l, const void *args)
{
    const oneshot_args *a = (const oneshot_args *)args;
    uint32_t blocks = (uint32_t)((a->n + ONESHOT_CHUNK - 1) / ONESHOT_CHUNK);
    return launch(oneshot_kernel, blocks, THREADS, sizeof(uint32_t), l->stream, l->overlap, *a);
}
