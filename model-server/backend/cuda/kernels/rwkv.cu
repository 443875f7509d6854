/* rwkv.cu - RWKV-7's recurrence (RECUR_RWKV of backend/recur.h). Sums have the order of the CPU's
 * (backend/cpu/rwkv.c, and k_recur_ref), but for lengths, the norm and the bonus, which a warp adds
 * up. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#include "model-server/backend/cuda/kernels/recur.cuh"

constexpr float DECAY = 0x1.368b3p-1f; /* exp(-1 / 2) */
constexpr float LEAST_LENGTH = 1e-12f;

/* A head's numbers of one token in `work`: decays, then what is erased, then what is put. */
static __device__ __forceinline__ float *work_of(const rwkv_args &a, size_t row, uint32_t h)
{
    return a.work + (row * a.heads + h) * 3 * a.dim;
}

/* grid: (tokens, heads); a warp each */
static __global__ void __launch_bounds__(32) rwkv_prepare_kernel(rwkv_args a)
{
    depend();
    const size_t row = blockIdx.x, first = (size_t)blockIdx.y * a.dim;
    const size_t at = row * a.heads * a.dim + first;
    float *decay = work_of(a, row, blockIdx.y), *erase = decay + a.dim, *put = erase + a.dim;
    float square = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.dim; i += 32) {
        const float k = a.k[at + i], rate = math_sigmoid(a.rate[at + i] + a.rate_bias[first + i]);
        decay[i] = math_exp(-DECAY * math_sigmoid(a.step[at + i] + a.step_bias[first + i]));
        erase[i] = k * a.erase[first + i];
        put[i] = rate;
        a.k[at + i] = k * (1.0f + (rate - 1.0f) * a.replace[first + i]);
        square = fmaf(erase[i], erase[i], square);
        if (a.first)
            a.v[at + i] += math_sigmoid(a.blend[at + i] + a.blend_bias[first + i]) *
                           (a.first[at + i] - a.v[at + i]);
    }
    const float by = 1.0f / fmaxf(sqrtf(warp_sum(square)), LEAST_LENGTH);
    for (uint32_t i = threadIdx.x; i < a.dim; i += 32) {
        erase[i] *= by;
        put[i] *= erase[i];
    }
}

extern "C" cudaError_t rwkv_prepare_launch(const struct launch *l, const void *args)
{
    const rwkv_args *a = (const rwkv_args *)args;
    return launch(rwkv_prepare_kernel, dim3(a->tokens, a->heads), 32, 0, l->stream, l->overlap, *a);
}

/* Vectors of a token that a block keeps in shared memory: decays, what is erased, what is put, the
 * query and the key. */
enum { VECTORS = 5 };

/* grid: (dim / values at once, heads, spans). A thread has a value, and its column of the state.
 * Shared memory: [dim][threads] the state, then the vectors. */
static __global__ void __launch_bounds__(32) rwkv_kernel(rwkv_args a)
{
    float *state = dynamic_shared<float>();
    depend();
    const uint32_t h = blockIdx.y, n = blockDim.x, me = threadIdx.x, j = blockIdx.x * n + me;
    const span_view s = a.spans[blockIdx.z];
    const bool mine = j < a.dim, start = at_start(s);
    const size_t head = (size_t)h * a.dim * a.dim + j;
    const float *from = a.base + s.state_in * a.stride + head;
    float *to = a.base + s.state_out * a.stride + head;
    float *decay = state + (size_t)a.dim * n, *erase = decay + a.dim, *put = erase + a.dim;
    float *q = put + a.dim, *k = q + a.dim;
    for (uint32_t i = 0; i < a.dim; i++)
        state[(size_t)i * n + me] = mine && !start ? from[(size_t)i * a.dim] : 0.0f;
    for (size_t row = s.first; row < (size_t)s.first + s.n; row++) {
        const size_t at = (row * a.heads + h) * a.dim;
        const float *work = work_of(a, row, h);
        const float v = mine ? a.v[at + j] : 0.0f;
        __syncthreads(); /* the last token's vectors have been read */
        for (uint32_t i = me; i < 3 * a.dim; i += n)
            decay[i] = work[i];
        for (uint32_t i = me; i < a.dim; i += n) {
            q[i] = a.q[at + i];
            k[i] = a.k[at + i];
        }
        __syncthreads();
        float erased = 0.0f, o = 0.0f;
        for (uint32_t i = 0; i < a.dim; i++)
            erased = fmaf(erase[i], state[(size_t)i * n + me], erased);
        for (uint32_t i = 0; i < a.dim; i++) {
            float *p = &state[(size_t)i * n + me];
            *p = fmaf(-put[i], erased, fmaf(k[i], v, decay[i] * *p));
            o = fmaf(q[i], *p, o);
        }
        if (mine)
            a.o[at + j] = o;
    }
    for (uint32_t i = 0; mine && i < a.dim; i++)
        to[(size_t)i * a.dim] = state[(size_t)i * n + me];
}

extern "C" cudaError_t rwkv_launch(const struct launch *l, const void *args)
{
    const rwkv_args *a = (const rwkv_args *)args;
    const uint32_t n = values_at_once(a->dim);
    return launch(rwkv_kernel, dim3((a->dim + n - 1) / n, a->heads, a->n_spans), n,
                  (size_t)a->dim * (n + VECTORS) * sizeof(float), l->stream, l->overlap, *a);
}

/* Norm, bonus and gate of a head's result. grid: (tokens, heads); a warp each */
static __global__ void __launch_bounds__(32) rwkv_finish_kernel(rwkv_args a)
{
    depend();
    const size_t first = (size_t)blockIdx.y * a.dim;
    const size_t at = (size_t)blockIdx.x * a.heads * a.dim + first;
    float sum = 0.0f, square = 0.0f, bonus = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.dim; i += 32) {
        sum += a.o[at + i];
        bonus = fmaf(a.q[at + i] * a.bonus[first + i], a.k[at + i], bonus);
    }
    const float mean = warp_sum(sum) / (float)a.dim;
    for (uint32_t i = threadIdx.x; i < a.dim; i += 32) {
        const float far = a.o[at + i] - mean;
        square = fmaf(far, far, square);
    }
    const float scale = 1.0f / sqrtf(warp_sum(square) / (float)a.dim + a.eps);
    bonus = warp_sum(bonus);
    for (uint32_t i = threadIdx.x; i < a.dim; i += 32) {
        const float y =
            fmaf((a.o[at + i] - mean) * scale, a.norm[first + i], a.norm_bias[first + i]);
        a.o[at + i] = fmaf(bonus, a.v[at + i], y) * a.gate[at + i];
    }
}

extern "C" cudaError_t rwkv_finish_launch(const struct launch *l, const void *args)
{
    const rwkv_args *a = (const rwkv_args *)args;
    return launch(rwkv_finish_kernel, dim3(a->tokens, a->heads), 32, 0, l->stream, l->overlap, *a);
}
