/* kv.cu - filling and copying the paged cache of K and V. */
#include "model-server/backend/cuda/kernels/heads.cuh"

enum { WARPS = 4, QUAD = 4 };

/* One warp per head of a token; grid: (tokens, heads / WARPS). ROTATED: the cache has 4 bits, and
 * shared memory a head for each warp. */
template <bool ROTATED>
static __global__ void __launch_bounds__(WARPS * 32) rope_kernel(rope_args a)
{
    depend();
    uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t heads = a.n_heads + 2 * a.n_kv_heads;
    if (head >= heads)
        return;
    float *room = ROTATED ? dynamic_shared<float>() + threadIdx.x / 32 * a.head_dim : NULL;
    finish_head<true, ROTATED>(a, blockIdx.x, head, lane, room);
}

/* What most models ask for: whole heads rotate in halves, norms of heads share their weights, the
 * cache has 16 bits. A lane takes two neighbours and the two that they rotate with. The same
 * numbers as finish_head(). */
static bool plain_heads(const rope_args *a)
{
    const bool norms = a->v_norm || a->squares || a->norm_layer || a->norm_by_head || a->norm_last ||
                       a->q_norm_bias;
    const bool half = a->kv.dtype == KV_F16 || a->kv.dtype == KV_BF16;
    return a->rope && a->rot_dim == a->head_dim && a->head_dim % QUAD == 0 &&
           a->v_dim == a->head_dim && half && !a->interleaved && !norms && !a->q_scale &&
           a->clip <= 0;
}

/* Where head `head` of k, then of v, is stored. */
static __device__ __forceinline__ uint16_t *cached_head(const rope_args &a, uint32_t token,
                                                        uint32_t head)
{
    const uint32_t slot = a.slots[token];
    const bool v = head >= a.n_kv_heads;
    char *block =
        (v ? a.kv.v : a.kv.k) + (size_t)(slot >> a.kv.block_shift) * a.kv.block_bytes;
    const size_t row = (size_t)(v ? head - a.n_kv_heads : head) * a.kv.block_size +
                       (slot & (a.kv.block_size - 1));
    return (uint16_t *)block + row * a.head_dim;
}

static __device__ __forceinline__ uint32_t pair_of(const rope_args &a, float2 f)
{
    if (a.kv.dtype == KV_F16)
        return f16_of_f32(f.x) | (uint32_t)f16_of_f32(f.y) << 16;
    return bf16_of_f32(f.x) | (uint32_t)bf16_of_f32(f.y) << 16;
}

static __device__ __forceinline__ void rotate_two(float2 *x0, float2 *x1, float2 c, float2 s)
{
    const float2 y0 = make_float2(fmaf(-x1->x, s.x, x0->x * c.x), fmaf(-x1->y, s.y, x0->y * c.y));
    *x1 = make_float2(fmaf(x0->x, s.x, x1->x * c.x), fmaf(x0->y, s.y, x1->y * c.y));
    *x0 = y0;
}

static __device__ __forceinline__ float2 scaled(float2 x, float scale, float2 w)
{
    return make_float2(x.x * scale * w.x, x.y * scale * w.y);
}

/* As rope_kernel(). */
static __global__ void __launch_bounds__(WARPS * 32) rope_plain_kernel(rope_args a)
{
    depend();
    const uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t keys = a.n_heads + a.n_kv_heads, heads = keys + a.n_kv_heads;
    if (head >= heads)
        return;
    const uint32_t token = blockIdx.x, half = a.head_dim / 2;
    const bool q = head < a.n_heads, v = head >= keys;
    float *x = a.qkv + ((size_t)token * heads + head) * a.head_dim;
    const float *w = q ? a.q_norm : v ? NULL : a.k_norm, *c = a.rope + (size_t)token * a.rot_dim;
    uint16_t *cached = q ? NULL : cached_head(a, token, head - a.n_heads);
    const float scale = w ? norm_of_head(a, x, a.head_dim, lane).scale : 1.0f;
    for (uint32_t i = 2 * lane; i < half; i += 2 * 32) {
        float2 x0 = *(float2 *)(x + i), x1 = *(float2 *)(x + half + i);
        if (w) {
            x0 = scaled(x0, scale, *(const float2 *)(w + i));
            x1 = scaled(x1, scale, *(const float2 *)(w + half + i));
        }
        if (!v) {
            rotate_two(&x0, &x1, *(const float2 *)(c + i), *(const float2 *)(c + half + i));
            *(float2 *)(x + i) = x0, *(float2 *)(x + half + i) = x1;
        }
        if (!q) {
            *(uint32_t *)(cached + i) = pair_of(a, x0);
            *(uint32_t *)(cached + half + i) = pair_of(a, x1);
        }
    }
}

extern "C" cudaError_t rope_launch(const struct launch *l, const void *args)
{
    const rope_args *a = (const rope_args *)args;
    const uint32_t heads = a->n_heads + 2 * a->n_kv_heads;
    const bool rotated = a->kv.dtype == KV_I4;
    return launch(rotated          ? rope_kernel<true>
                  : plain_heads(a) ? rope_plain_kernel
                                   : rope_kernel<false>,
                  dim3(a->tokens, (heads + WARPS - 1) / WARPS), WARPS * 32,
                  rotated ? WARPS * a->head_dim * sizeof(float) : 0, l->stream, l->overlap, *a);
}

/* A head of q: its latent part, then its rotated part. */
static __device__ void latent_query(const latent_args &a, uint32_t token, uint32_t head,
                                    uint32_t lane)
{
    const size_t at = (size_t)token * a.n_heads + head;
    float *q = a.q + at * (a.rank + a.rot_dim);
    const float *turned = a.turned + at * a.rot_dim, *rope = a.rope + (size_t)token * a.rot_dim;
    const float by = a.q_scale ? a.q_scale[token] : 1;
    for (uint32_t i = lane; i < a.rank; i += 32)
        q[i] = a.latent[at * a.rank + i] * by;
    rotate_into(q + a.rank, turned, a.rope ? rope : NULL, a.rot_dim, a.interleaved, lane);
    if (!a.q_scale)
        return;
    __syncwarp(); /* other lanes have written pairs */
    for (uint32_t i = lane; i < a.rot_dim; i += 32)
        q[a.rank + i] *= by;
}

/* The rotated part of a key with a norm of its own; behind the key is room for what it makes. */
static __device__ void turn_normed(const latent_args &a, const float *kv, const float *rope,
                                   float *key, uint32_t lane)
{
    float *normed = key + a.rot_dim;
    float sum = 0.0f;
    for (uint32_t i = lane; i < a.rot_dim; i += 32)
        sum = fmaf(kv[i], kv[i], sum);
    const float s = 1.0f / sqrtf(warp_sum(sum) / (float)a.rot_dim + a.eps);
    for (uint32_t i = lane; i < a.rot_dim; i += 32)
        normed[i] = kv[i] * s * a.turn_norm[i];
    __syncwarp(); /* other lanes read them in pairs */
    rotate_into(key, normed, a.rope ? rope : NULL, a.rot_dim, a.interleaved, lane);
}

/* Normalises and rotates the key of a token in shared memory, and writes it to the cache. */
static __device__ void latent_key(const latent_args &a, uint32_t token, float *key, uint32_t lane)
{
    const uint32_t n = a.rank;
    const float *kv = a.kv_rows + (size_t)token * (n + a.rot_dim);
    const float *rope = a.rope + (size_t)token * a.rot_dim;
    float sum = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        sum = fmaf(kv[i], kv[i], sum);
    const float s = 1.0f / sqrtf(warp_sum(sum) / (float)n + a.eps);
    for (uint32_t i = lane; i < n; i += 32)
        key[i] = kv[i] * s * a.norm[i];
    if (!a.turn_norm)
        rotate_into(key + n, kv + n, a.rope ? rope : NULL, a.rot_dim, a.interleaved, lane);
    else
        turn_normed(a, kv + n, rope, key + n, lane);
    __syncwarp(); /* the other lanes' numbers */
    rope_args r = {};
    r.kv = a.kv;
    r.head_dim = n + a.rot_dim;
    if (a.kv.dtype == KV_I4)
        store_rotated(r, a.kv.k, 0, a.slots[token], key, r.head_dim, lane);
    else
        store_head(r, a.kv.k, 0, a.slots[token], key, r.head_dim, lane);
}

/* One warp per head of a token, one more for its key; grid: (tokens, (heads + 1) / WARPS). */
static __global__ void __launch_bounds__(WARPS * 32) latent_kernel(latent_args a)
{
    float *key = dynamic_shared<float>();
    depend();
    const uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head < a.n_heads)
        latent_query(a, blockIdx.x, head, lane);
    else if (head == a.n_heads && a.kv_rows)
        latent_key(a, blockIdx.x, key, lane);
}

extern "C" cudaError_t latent_launch(const struct launch *l, const void *args)
{
    const latent_args *a = (const latent_args *)args;
    return launch(latent_kernel, dim3(a->tokens, a->n_heads / WARPS + 1), WARPS * 32,
                  (a->rank + a->rot_dim * (a->turn_norm ? 2 : 1)) * sizeof(float), l->stream, l->overlap, *a);
}

/* Copies block src[i] to dst[i] in every stream (layer x {K, V}); grid: (streams, n). T: uint4 if
 * the blocks are multiples of 16 bytes. */
template <typename T> static __global__ void __launch_bounds__(256) kv_copy_kernel(kv_copy_args a)
{
    depend();
    char *stream = (char *)a.data + blockIdx.x * a.stream_bytes;
    const T *from = (const T *)(stream + a.src[blockIdx.y] * a.block_bytes);
    T *to = (T *)(stream + a.dst[blockIdx.y] * a.block_bytes);
    if (from == to)
        return;
    for (size_t i = threadIdx.x; i < a.block_bytes / sizeof(T); i += 256)
        to[i] = from[i];
}

extern "C" cudaError_t kv_copy_launch(const struct launch *l, const void *args)
{
    const kv_copy_args *a = (const kv_copy_args *)args;
    dim3 grid(a->streams, a->n);
    if (a->block_bytes % 16)
        return launch(kv_copy_kernel<uint16_t>, grid, 256, 0, l->stream, l->overlap, *a);
    return launch(kv_copy_kernel<uint4>, grid, 256, 0, l->stream, l->overlap, *a);
}
