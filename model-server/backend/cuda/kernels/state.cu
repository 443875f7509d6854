/* state.cu - recurrent layers. A result has the order of sums that the CPU's has
 * (backend/cpu/state.c), but for the lengths of queries and keys and for the norms, which a block
 * adds up. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/norm.cuh"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#include "model-server/backend/cuda/kernels/recur.cuh"

enum { THREADS = NORM_THREADS, WARPS = NORM_WARPS };

/* ---------------------------------------------------------------- convolution */

/* Input number `at` of a span; negative ones are in its cell, -1 is the last of them. */
static __device__ __forceinline__ float conv_input(const conv_args &a, const span_view &s, int at,
                                                   uint32_t c)
{
    if (at >= 0)
        return a.x[(size_t)(s.first + (uint32_t)at) * a.x_stride + c];
    if (at_start(s))
        return 0.0f;
    const float *cell = a.base + s.state_in * a.stride;
    return cell[(size_t)((int)a.before + at) * a.channels + c];
}

/* grid: (tokens, channels / THREADS, sums) */
static __global__ void __launch_bounds__(THREADS) conv_kernel(conv_args a)
{
    depend();
    const uint32_t c = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[a.span_of[blockIdx.x]];
    const int t = (int)(blockIdx.x - s.first), before = (int)a.before;
    const int last = (int)a.width - 1, apart = before / last;
    if (c >= a.channels)
        return;
    const float *w = a.w + (size_t)blockIdx.z * a.width * a.channels + c;
    float sum = a.bias ? a.bias[c] : 0.0f;
    const float *by =
        a.by ? a.by + ((size_t)blockIdx.x * (a.channels / a.each) + c / a.each) * a.width : nullptr;
    for (int j = 0; j <= last; j++)
        sum = fmaf(w[(size_t)j * a.channels] + (by ? by[last - j] : 0.0f),
                   conv_input(a, s, t - before + j * apart, c), sum);
    a.y[((size_t)blockIdx.z * a.tokens + blockIdx.x) * a.channels + c] = a.silu ? math_act(sum, ACT_SILU) : sum;
}

extern "C" cudaError_t conv_launch(const struct launch *l, const void *args)
{
    const conv_args *a = (const conv_args *)args;
    return launch(conv_kernel, dim3(a->tokens, (a->channels + THREADS - 1) / THREADS, a->sums), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* grid: (spans, channels / THREADS). The oldest first: the cells may be one. */
static __global__ void __launch_bounds__(THREADS) conv_keep_kernel(conv_args a)
{
    depend();
    const uint32_t c = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[blockIdx.x];
    const int before = (int)a.before;
    if (c >= a.channels)
        return;
    float *cell = a.base + s.state_out * a.stride + c;
    for (int j = 0; j < before; j++)
        cell[(size_t)j * a.channels] = conv_input(a, s, (int)s.n - before + j, c);
}

extern "C" cudaError_t conv_keep_launch(const struct launch *l, const void *args)
{
    const conv_args *a = (const conv_args *)args;
    return launch(conv_keep_kernel, dim3(a->n_spans, (a->channels + THREADS - 1) / THREADS),
                  THREADS, 0, l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- recurrence */

enum { PREPARE_THREADS = 128 };

static __device__ void unit(float *x, uint32_t n, float length, uint32_t lane)
{
    float sum = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    const float scale = length / sqrtf(warp_sum(sum) + 1e-6f);
    for (uint32_t i = lane; i < n; i += 32)
        x[i] *= scale;
}

/* Decays of a head; its beta is after them in `work`. */
static __device__ __forceinline__ uint32_t decays_of(const recur_args &a)
{
    return a.by_key ? a.key_dim : 1;
}

/* grid: (tokens); a warp takes a query or a key at a time */
static __global__ void __launch_bounds__(PREPARE_THREADS) recur_prepare_kernel(recur_args a)
{
    depend();
    const size_t row = blockIdx.x;
    const float *step = a.step + row * a.step_stride;
    const uint32_t values = a.heads * a.value_dim, decays = decays_of(a);
    for (uint32_t i = threadIdx.x; a.kind == RECUR_SCAN && i < values; i += PREPARE_THREADS)
        a.work[row * values + i] = math_softplus(step[i] + a.dt_bias[i]);
    if (a.kind == RECUR_SCAN)
        return;
    float *work = a.work + row * a.heads * (decays + 1), *x = a.x + row * a.x_stride;
    for (uint32_t i = threadIdx.x; i < a.heads * decays; i += PREPARE_THREADS) {
        const uint32_t h = i / decays;
        float dt = a.kind == RECUR_FIXED ? 1.0f : math_softplus(step[i] + a.dt_bias[i]);
        if (a.kind == RECUR_SSM) {
            dt = a.dt_max < dt ? a.dt_max : dt;
            dt = a.dt_min > dt ? a.dt_min : dt;
        }
        float *to = work + h * (decays + 1);
        const float rate = math_exp(a.a_log[h]);
        to[i % decays] = math_exp(
            a.floor != 0.0f ? a.floor * math_sigmoid(rate * (step[i] + a.dt_bias[i])) : -rate * dt);
        if (i % decays == 0)
            to[decays] = a.kind == RECUR_SSM ? dt
                         : a.kind == RECUR_FIXED
                             ? 1.0f
                             : a.beta_scale * math_sigmoid(a.beta[row * a.beta_stride + h]);
    }
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t h = warp; a.kind == RECUR_DELTA && h < 2 * a.key_heads;
         h += PREPARE_THREADS / 32) {
        const bool key = h >= a.key_heads;
        const size_t at = (size_t)(h % a.key_heads) * a.key_dim;
        unit(x + (key ? a.k : a.q) + at, a.key_dim, key ? 1.0f : 1.0f / sqrtf((float)a.key_dim),
             lane);
    }
}

extern "C" cudaError_t recur_prepare_launch(const struct launch *l, const void *args)
{
    const recur_args *a = (const recur_args *)args;
    return launch(recur_prepare_kernel, a->tokens, PREPARE_THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (value_dim / values at once, heads, spans). A thread has a value, and its column of the
 * state. Shared memory: [key_dim][threads] the state, then a token's query, key and, with `by_key`,
 * decays. */
static __global__ void __launch_bounds__(32) recur_kernel(recur_args a)
{
    float *state = dynamic_shared<float>();
    depend();
    const uint32_t h = blockIdx.y, n = blockDim.x, me = threadIdx.x, j = blockIdx.x * n + me;
    const span_view s = a.spans[blockIdx.z];
    const bool mine = j < a.value_dim;
    const size_t head = (size_t)h * a.key_dim * a.value_dim, key = h / (a.heads / a.key_heads);
    const float *from = a.base + s.state_in * a.stride + head + j;
    float *to = a.base + s.state_out * a.stride + head + j;
    float *q = state + (size_t)a.key_dim * n, *k = q + a.key_dim, *g = k + a.key_dim;
    const bool scan = a.kind == RECUR_SCAN, delta = a.kind == RECUR_DELTA;
    const uint32_t decays = decays_of(a);
    const float *rates = a.rates + head + j; /* of RECUR_SCAN */
    for (uint32_t i = 0; i < a.key_dim; i++)
        state[(size_t)i * n + me] = mine && !at_start(s) ? from[(size_t)i * a.value_dim] : 0.0f;
    for (size_t row = s.first; row < (size_t)s.first + s.n; row++) {
        const float *x = a.x + row * a.x_stride;
        const float *work = scan ? a.work + (row * a.heads + h) * a.value_dim + (mine ? j : 0)
                                 : a.work + (row * a.heads + h) * (decays + 1);
        const float first = work[0], factor = scan ? first : work[decays];
        const float v = mine ? x[a.v + (size_t)h * a.value_dim + j] : 0.0f;
        const float *kq = a.kq ? a.kq + row * 2 * a.key_dim : nullptr;
        __syncthreads(); /* the last token's query and key have been read */
        for (uint32_t i = me; i < a.key_dim; i += n) {
            k[i] = kq ? kq[i] : x[a.k + key * a.key_dim + i];
            q[i] = kq ? kq[a.key_dim + i] : x[a.q + key * a.key_dim + i];
            if (a.by_key)
                g[i] = work[i];
        }
        __syncthreads();
        float u = v, known = 0.0f, o = 0.0f;
        for (uint32_t i = 0; delta && i < a.key_dim; i++)
            known = fmaf(a.by_key ? k[i] * g[i] : k[i], state[(size_t)i * n + me], known);
        if (delta)
            u = fmaf(a.by_key ? -1.0f : -first, known, u);
        u *= factor;
        for (uint32_t i = 0; i < a.key_dim; i++) {
            float *p = &state[(size_t)i * n + me];
            const float decay = scan && mine ? math_exp(rates[(size_t)i * a.value_dim] * first)
                                : a.by_key   ? g[i]
                                             : first;
            *p = fmaf(k[i], u, decay * *p);
            o = fmaf(q[i], *p, o);
        }
        if (mine)
            a.o[(row * a.heads + h) * a.value_dim + j] =
                a.skip ? fmaf(a.skip[scan ? h * a.value_dim + j : h], v, o) : o;
    }
    for (uint32_t i = 0; mine && i < a.key_dim; i++)
        to[(size_t)i * a.value_dim] = state[(size_t)i * n + me];
}

extern "C" cudaError_t recur_launch(const struct launch *l, const void *args)
{
    const recur_args *a = (const recur_args *)args;
    const uint32_t n = values_at_once(a->key_dim);
    return launch(recur_kernel, dim3((a->value_dim + n - 1) / n, a->heads, a->n_spans), n,
                  (size_t)a->key_dim * (n + 2 + (a->by_key ? 1 : 0)) * sizeof(float), l->stream,
                  l->overlap, *a);
}

/* RECUR_GATED. grid: (spans, values / THREADS). A thread has a value. */
static __global__ void __launch_bounds__(THREADS) gated_kernel(recur_args a)
{
    depend();
    const uint32_t all = a.heads * a.value_dim, i = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[blockIdx.x];
    if (i >= all)
        return;
    float state = at_start(s) ? 0.0f : a.base[s.state_in * a.stride + i];
    const float rate = a.rates[i], step_bias = a.dt_bias[i], beta_bias = a.beta_bias[i];
    for (size_t row = s.first; row < (size_t)s.first + s.n; row++) {
        const float l = rate * math_sigmoid(a.step[row * a.step_stride + i] + step_bias);
        const float u = a.x[row * a.x_stride + a.v + i] *
                        math_sigmoid(a.beta[row * a.beta_stride + i] + beta_bias);
        const bool first = row == s.first && at_start(s);
        const float by = first ? 1.0f : sqrtf(1.0f - math_exp(2.0f * l));
        state = fmaf(by, u, math_exp(l) * state);
        a.o[row * all + i] = state;
    }
    a.base[s.state_out * a.stride + i] = state;
}

extern "C" cudaError_t gated_launch(const struct launch *l, const void *args)
{
    const recur_args *a = (const recur_args *)args;
    const uint32_t all = a->heads * a->value_dim;
    return launch(gated_kernel, dim3(a->n_spans, (all + THREADS - 1) / THREADS), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- gates and norms */

static __device__ __forceinline__ float gated(const gate_norm_args &a, float x, float gate)
{
    return a.kind == GATE_SILU        ? math_gate(gate, x, ACT_SILU)
           : a.kind == GATE_GELU_TANH ? math_gate(gate, x, ACT_GELU_TANH)
           : a.kind == GATE_SIGMOID   ? x * math_sigmoid(gate)
           : a.kind == GATE_PRODUCT   ? x * gate
                                      : x;
}

/* grid: (rows, groups) */
static __global__ void __launch_bounds__(THREADS) gate_norm_kernel(gate_norm_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    const size_t row = blockIdx.x;
    const uint32_t first = blockIdx.y * a.group, end = first + a.group;
    float *x = a.x + row * a.x_stride, square = 0.0f, scale = 1.0f;
    const float *gate = a.gate ? a.gate + row * a.stride : x;
    if (a.w && !a.squares) {
        for (uint32_t i = first + threadIdx.x; i < end; i += THREADS) {
            const float v = a.norm_first ? x[i] : gated(a, x[i], gate[i]);
            square = fmaf(v, v, square);
        }
        scale = 1.0f / sqrtf(block_sum(square, sums, blockDim.x / 32) / (float)a.group + a.eps);
    } else if (a.w) {
        scale = 1.0f / sqrtf(a.squares[row * SQUARES + a.column] / (float)a.all + a.eps);
    }
    for (uint32_t i = first + threadIdx.x; i < end; i += THREADS) {
        float v = a.norm_first ? x[i] : gated(a, x[i], gate[i]);
        v = a.w ? v * scale * a.w[i] : v;
        x[i] = a.norm_first ? gated(a, v, gate[i]) : v;
    }
}

extern "C" cudaError_t gate_norm_launch(const struct launch *l, const void *args)
{
    const gate_norm_args *a = (const gate_norm_args *)args;
    return launch(gate_norm_kernel, dim3(a->rows, a->n / a->group), norm_threads(a->group, 1),
                  WARPS * sizeof(float), l->stream, l->overlap, *a);
}
