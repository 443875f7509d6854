/* kv.c - the paged cache of K and V, and the operation that fills it. */
#include "model-server/backend/cpu/cpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t cpu_kv_block_bytes(const struct kv_desc *k)
{
    uint64_t streams = (uint64_t)2 * k->n_layers * k->n_kv_heads;
    return streams * (k->block_size / KV_PAGE) * kv_page_bytes(k->dtype, k->head_dim);
}

static int check_desc(const struct kv_desc *k, struct err *e)
{
    if (k->block_size < KV_PAGE || k->block_size & (k->block_size - 1))
        return err_set(e, ERR_VALIDATION,
                       "KV block size %u: the CPU backend takes powers of two from %d on",
                       k->block_size, KV_PAGE);
    if (!k->head_dim || k->head_dim > MAX_HEAD_DIM)
        return err_set(e, ERR_VALIDATION, "head dimension %u: the CPU backend takes up to %d",
                       k->head_dim, MAX_HEAD_DIM);
    if ((unsigned)k->dtype >= KV_N)
        return err_set(e, ERR_VALIDATION, "unknown type of the KV cache");
    return 0;
}

struct kv_cache *cpu_kv_new(struct device *d, const struct kv_desc *k, struct err *e)
{
    if (check_desc(k, e))
        return NULL;
    if (!cpu_attention_reserve(d, k))
        return err_nomem(e), NULL;
    struct kv_cache *kv = calloc(1, sizeof(*kv));
    if (!kv)
        return err_nomem(e), NULL;
    kv->desc = *k;
    while ((uint32_t)KV_PAGE << kv->page_shift < k->block_size)
        kv->page_shift++;
    kv->page_bytes = kv_page_bytes(k->dtype, k->head_dim);
    kv->block_bytes = kv->page_bytes << kv->page_shift;
    if (__builtin_mul_overflow((size_t)cpu_kv_block_bytes(k), (size_t)k->n_blocks, &kv->bytes) ||
        !(kv->data = cpu_map(kv->bytes))) {
        err_set(e, ERR_SYSTEM,
                "no memory for a KV cache of %u blocks, %llu bytes (--kv-cache-memory takes less)",
                k->n_blocks, (unsigned long long)cpu_kv_block_bytes(k) * k->n_blocks);
        free(kv);
        return NULL;
    }
    if (cpu_populate_front(d, kv, e)) {
        cpu_kv_free(d, kv);
        return NULL;
    }
    kv->populate = cpu_populate(kv);
    return kv;
}

void cpu_kv_free(struct device *d, struct kv_cache *kv)
{
    (void)d;
    if (!kv)
        return;
    cpu_populate_end(kv->populate);
    cpu_unmap(kv->data, kv->bytes);
    free(kv);
}

int cpu_kv_copy(struct device *d, struct kv_cache *kv, const uint32_t *src, const uint32_t *dst,
                uint32_t n, struct err *e)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        if (src[i] >= kv->desc.n_blocks || dst[i] >= kv->desc.n_blocks)
            return err_set(e, ERR_VALIDATION, "copy of KV block %u to %u: there are %u", src[i],
                           dst[i], kv->desc.n_blocks);
        for (size_t s = 0; src[i] != dst[i] && s < kv_n_streams(kv); s++) {
            char *stream = kv->data + s * kv->desc.n_blocks * kv->block_bytes;
            memcpy(stream + dst[i] * kv->block_bytes, stream + src[i] * kv->block_bytes,
                   kv->block_bytes);
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- rope_kv */

struct rope_job {
    struct device *d;
    float *qkv;
    struct kv_cache *kv;
    uint32_t layer;
    const struct rope_kv *p;
};

/* One head of one token in the type of the cache, dimension after dimension. */
union narrow {
    uint16_t half[MAX_HEAD_DIM];
    uint8_t byte[MAX_HEAD_DIM];
};

static void put_key(char *page, enum kv_dtype t, uint32_t at, uint32_t dim, const void *x)
{
    for (uint32_t i = 0; i < dim; i++) {
        size_t to = kv_key_at(t, at, i);
        if (t == KV_F32)
            ((float *)(void *)page)[to] = ((const float *)x)[i];
        else if (kv_dtype_scaled(t))
            ((uint8_t *)page)[to] = ((const uint8_t *)x)[i];
        else
            ((uint16_t *)(void *)page)[to] = ((const uint16_t *)x)[i];
    }
}

static void put_value(char *page, enum kv_dtype t, uint32_t at, uint32_t dim, const void *x)
{
    size_t size = kv_dtype_size(t);
    if (t != KV_BF16) {
        memcpy(page + kv_value_at(t, dim, at, 0) * size, x, dim * size);
        return;
    }
    for (uint32_t i = 0; i < dim; i++)
        ((uint16_t *)(void *)page)[kv_value_at(t, dim, at, i)] = ((const uint16_t *)x)[i];
}

static void store_head(const struct rope_job *j, bool v, uint32_t head, uint32_t slot,
                       const float *x)
{
    const struct kv_cache *kv = j->kv;
    const struct kernels *kern = &j->d->kern;
    const enum kv_dtype t = kv->desc.dtype;
    uint32_t dim = kv->desc.head_dim, at = slot % KV_PAGE;
    char *page = kv_stream(kv, j->layer, v, head) + (size_t)(slot / KV_PAGE) * kv->page_bytes;
    union narrow small;
    int32_t unused;
    const void *from = &small;
    switch (t) {
    case KV_F16:
        kern->narrow_f16(small.half, x, dim);
        break;
    case KV_BF16:
        kern->narrow_bf16(small.half, x, dim);
        break;
    case KV_I8:
        kv_scales(page, dim)[at] = kern->quantise(small.byte, 4, x, dim, 0, &unused);
        break;
    case KV_FP8:
        kv_scales(page, dim)[at] = kern->quantise_fp8(small.byte, x, dim);
        break;
    default:
        from = x;
    }
    (v ? put_value : put_key)(page, t, at, dim, from);
}

/* Head `head` of q (part 0) or k (part 1). */
static void norm_head(const struct rope_job *j, float *x, int part, uint32_t head, size_t token)
{
    const struct rope_kv *p = j->p;
    const float *w = part ? p->k_norm : p->q_norm;
    if (p->norm_by_head || p->squares)
        w += (size_t)head * p->head_dim;
    if (!p->squares) {
        const bool layer = p->norm_kind == NORM_LAYER;
        (layer ? j->d->kern.norm_layer : j->d->kern.norm_rms)(x, x, w, NULL, p->head_dim,
                                                              p->norm_eps);
        return;
    }
    const float mean =
        p->squares[token * SQUARES + (size_t)part] / (float)(part ? p->k_all : p->q_all);
    const float s = 1.0f / sqrtf(mean + p->norm_eps);
    for (uint32_t i = 0; i < p->head_dim; i++)
        x[i] = x[i] * s * w[i];
}

static void prepare_head(const struct rope_job *j, float *x, int part, uint32_t head, size_t token)
{
    const struct rope_kv *p = j->p;
    if (part ? p->k_norm : p->q_norm)
        norm_head(j, x, part, head, token);
    if (p->rope && p->rot_dim)
        j->d->kern.rotate(x, p->rope + token * p->rot_dim, p->rot_dim, p->interleaved);
}

static void rope_tokens(void *arg, int thread, size_t begin, size_t end)
{
    const struct rope_job *j = arg;
    const struct rope_kv *p = j->p;
    size_t width = (size_t)(p->n_heads + 2 * p->n_kv_heads) * p->head_dim;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *q = j->qkv + t * width, *k = q + (size_t)p->n_heads * p->head_dim;
        float *v = k + (size_t)p->n_kv_heads * p->head_dim;
        uint32_t slot = j->d->batch->slots[t];
        for (uint32_t h = 0; h < p->n_heads; h++)
            prepare_head(j, q + (size_t)h * p->head_dim, 0, h, t);
        for (uint32_t h = 0; h < p->n_kv_heads; h++) {
            prepare_head(j, k + (size_t)h * p->head_dim, 1, h, t);
            store_head(j, false, h, slot, k + (size_t)h * p->head_dim);
            store_head(j, true, h, slot, v + (size_t)h * p->head_dim);
        }
    }
}

void cpu_rope_kv(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                 const struct rope_kv *p)
{
    struct rope_job j = {d, qkv, kv, layer, p};
    pool_run(d->pool, rope_tokens, &j, d->batch->n_tokens, 4);
}
