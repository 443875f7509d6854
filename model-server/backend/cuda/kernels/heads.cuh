/* heads.cuh - processing of a head of q, k or v between its product and attention, by one warp:
 * norm, rotation, write to the cache.
 *
 * A layer's K (and V) is [block][kv head][position][dim]: the part of a block for a head is
 * contiguous, block_size * head_dim elements, 4 KiB for 16 positions of 128 in 16 bits. The
 * scales of int8 and fp8 follow the numbers of the block. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_HEADS_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_HEADS_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/hadamard.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"

/* Quantises a head to 8 bits, as the CPU's quantise(): see kernels.h there. */
struct head_scale {
    float scale, to; /* x = number * scale; number = x * to, nothing where to = 0 */
};
static __device__ head_scale scale_of(const float *x, uint32_t n, float top_number, uint32_t lane)
{
    uint32_t top = 0; /* magnitudes as bits: NaN is above infinity */
    for (uint32_t i = lane; i < n; i += 32) {
        uint32_t bits = bits_of(x[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    top = warp_fold(top, [](uint32_t a, uint32_t b) { return b > a ? b : a; });
    if (top >= 0x7f800000)
        return head_scale{NAN, 0.0f};
    float most = float_of(top);
    if (most < 0x1p-120f)
        return head_scale{0.0f, 0.0f};
    return head_scale{most / top_number, top_number / most};
}

/* Writes a head of a token to a cache in 4 bits, by one warp that has written its numbers to v, in
 * shared memory. */
static __device__ void store_rotated(const rope_args &a, char *cache, uint32_t kv_head,
                                     uint32_t slot, float *v, uint32_t dim, uint32_t lane)
{
    char *block = cache + (size_t)(slot / a.kv.block_size) * a.kv.block_bytes;
    const size_t row = (size_t)kv_head * a.kv.block_size + slot % a.kv.block_size;
    const size_t bytes = kv_row_numbers(KV_I4, a.head_dim) / 2;
    const float scale = store_4_bits(block + row * bytes, v, dim, lane);
    if (lane == 0)
        ((float *)(block + a.kv.scales))[row] = scale;
}

/* Writes a head of a token, `dim` numbers, to the cache, by one warp. */
static __device__ void store_head(const rope_args &a, char *cache, uint32_t kv_head, uint32_t slot,
                                  const float *x, uint32_t dim, uint32_t lane)
{
    char *block = cache + (size_t)(slot / a.kv.block_size) * a.kv.block_bytes;
    const size_t row = (size_t)kv_head * a.kv.block_size + slot % a.kv.block_size,
                 at = row * a.head_dim;
    head_scale s = {};
    if (a.kv.scales) {
        s = scale_of(x, dim, a.kv.dtype == KV_I8 ? 127.0f : FP8_TOP, lane);
        if (lane == 0)
            ((float *)(block + a.kv.scales))[row] = s.scale;
    }
    for (uint32_t i = lane; i < dim; i += 32) {
        const float f = x[i], n = s.to > 0.0f ? f * s.to : 0.0f;
        switch (a.kv.dtype) {
        case KV_F32:
            ((float *)block)[at + i] = f;
            break;
        case KV_F16:
            ((uint16_t *)block)[at + i] = f16_of_f32(f);
            break;
        case KV_BF16:
            ((uint16_t *)block)[at + i] = bf16_of_f32(f);
            break;
        case KV_I8:
            block[at + i] = (char)(int)rintf(n);
            break;
        default:
            block[at + i] = (char)fp8_of_f32(n);
        }
    }
}

/* The shift and the scale of one head's norm. */
struct head_norm {
    float mean, scale;
};
static __device__ head_norm norm_of_head(const rope_args &a, const float *x, uint32_t n,
                                         uint32_t lane)
{
    float sum = 0.0f, mean = 0.0f;
    for (uint32_t i = lane; a.norm_layer && i < n; i += 32)
        sum += x[i];
    if (a.norm_layer)
        mean = warp_sum(sum) / (float)n;
    sum = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        sum = fmaf(x[i] - mean, x[i] - mean, sum);
    return head_norm{mean, 1.0f / sqrtf(warp_sum(sum) / (float)n + a.eps)};
}

/* Normalises one head of `dim` elements in place, by `s`, the weights w (NULL: no norm) and the
 * bias b (or NULL), and rotates it (`rope` NULL: no rotation). A lane processes pairs that rotate
 * together. Rotation does not change the norm of a head, so with norm_last only the weights are
 * applied after it. */
static __device__ void rotate_head(const rope_args &a, float *x, uint32_t dim, const float *w,
                                   const float *b, head_norm s, const float *rope, uint32_t lane)
{
    const uint32_t half = a.rot_dim / 2, pairs = a.rope && rope ? half : 0;
    for (uint32_t i = lane; i < pairs; i += 32) {
        uint32_t i0 = a.interleaved ? 2 * i : i, i1 = a.interleaved ? 2 * i + 1 : i + half;
        const bool first = w && !a.norm_last, last = w && a.norm_last;
        float x0 = first ? (x[i0] - s.mean) * s.scale * w[i0] : x[i0];
        float x1 = first ? (x[i1] - s.mean) * s.scale * w[i1] : x[i1];
        if (b)
            x0 += b[i0], x1 += b[i1];
        float c = rope[i], sn = rope[half + i];
        float y0 = fmaf(-x1, sn, x0 * c), y1 = fmaf(x0, sn, x1 * c);
        x[i0] = last ? y0 * s.scale * w[i0] : y0, x[i1] = last ? y1 * s.scale * w[i1] : y1;
    }
    for (uint32_t i = 2 * pairs + lane; w && i < dim; i += 32) /* what does not rotate */
        x[i] = (x[i] - s.mean) * s.scale * w[i] + (b ? b[i] : 0.0f);
}

/* y = x, rotated unless `rope` is NULL; n elements, by one warp. */
static __device__ void rotate_into(float *y, const float *x, const float *rope, uint32_t n,
                                   bool interleaved, uint32_t lane)
{
    const uint32_t half = n / 2;
    for (uint32_t i = lane; i < half; i += 32) {
        const uint32_t i0 = interleaved ? 2 * i : i, i1 = interleaved ? 2 * i + 1 : i + half;
        const float x0 = x[i0], x1 = x[i1], c = rope ? rope[i] : 1.0f,
                    s = rope ? rope[half + i] : 0.0f;
        y[i0] = fmaf(-x1, s, x0 * c), y[i1] = fmaf(x0, s, x1 * c);
    }
}

/* Elements of a head. NARROW: values may be narrower than keys, and norms may have biases. Read
 * where it is used: a register for it is one too many in linear_stream. */
template <bool NARROW>
static __device__ __forceinline__ uint32_t head_size(const rope_args &a, bool v)
{
    return NARROW && v ? a.v_dim : a.head_dim;
}

/* Head `head` of a token, of q, then k, then v. ROTATED: the cache has 4 bits; room: of the warp, a
 * head in shared memory. */
template <bool NARROW, bool ROTATED = false>
static __device__ void finish_head(const rope_args &a, uint32_t token, uint32_t head, uint32_t lane,
                                   float *room = NULL)
{
    const uint32_t keys = a.n_heads + a.n_kv_heads;
    const bool q = head < a.n_heads, v = head >= keys;
    float *x = a.qkv + ((size_t)token * (keys + a.n_kv_heads) + head) * a.head_dim;
    if constexpr (NARROW) {
        const uint32_t width = keys * a.head_dim + a.n_kv_heads * a.v_dim;
        x = a.qkv + (size_t)token * width +
            (v ? keys * a.head_dim + (head - keys) * a.v_dim : head * a.head_dim);
    }
    const float *w = q ? a.q_norm : v ? a.v_norm : a.k_norm;
    if (a.clip > 0.0f) {
        for (uint32_t i = lane; i < head_size<NARROW>(a, v); i += 32)
            x[i] = x[i] > a.clip ? a.clip : x[i] < -a.clip ? -a.clip : x[i]; /* NaN stays NaN */
        __syncwarp(); /* the other lanes' numbers */
    }
    if (!v || w) {
        head_norm s{0.0f, 1.0f};
        if (w && a.squares && !v) { /* over all heads */
            const float sum = a.squares[(size_t)token * SQUARES + !q];
            s.scale = 1.0f / sqrtf(sum / (float)(q ? a.q_all : a.k_all) + a.eps);
        } else if (w) {
            s = norm_of_head(a, x, head_size<NARROW>(a, v), lane);
        }
        const float *b = NARROW && !v ? (q ? a.q_norm_bias : a.k_norm_bias) : NULL;
        const size_t own = (size_t)(q ? head : head - a.n_heads) * a.head_dim;
        if (w && !v && (a.squares || a.norm_by_head))
            w += own;
        if (b && a.norm_by_head)
            b += own;
        rotate_head(a, x, head_size<NARROW>(a, v), w, b, s, v ? NULL : a.rope + (size_t)token * a.rot_dim, lane);
    }
    if (q && a.q_scale) {
        __syncwarp();
        for (uint32_t i = lane; i < a.head_dim; i += 32)
            x[i] *= a.q_scale[token];
    }
    if (q)
        return;
    __syncwarp(); /* the other lanes' numbers */
    if constexpr (ROTATED) {
        for (uint32_t i = lane; i < head_size<NARROW>(a, v); i += 32)
            room[i] = x[i];
        store_rotated(a, v ? a.kv.v : a.kv.k, (head - a.n_heads) % a.n_kv_heads, a.slots[token],
                      room, head_size<NARROW>(a, v), lane);
        return;
    }
    store_head(a, v ? a.kv.v : a.kv.k, (head - a.n_heads) % a.n_kv_heads, a.slots[token], x,
               head_size<NARROW>(a, v), lane);
}
#endif
