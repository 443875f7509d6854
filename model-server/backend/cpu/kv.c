/* kv.c - the paged cache of K and V, and the operation that fills it. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/numbers.h"
#include <stdlib.h>
#include <string.h>

static size_t lanes_up(size_t n) { return (n + LANES - 1) / LANES * LANES; }

static size_t head_bytes(const struct kv_desc *k)
{
    return lanes_up(k->block_size) * lanes_up(k->head_dim) * dtype_size(k->dtype);
}

uint64_t cpu_kv_block_bytes(const struct kv_desc *k)
{
    return (uint64_t)2 * k->n_layers * k->n_kv_heads * head_bytes(k);
}

struct kv_cache *cpu_kv_new(struct device *d, const struct kv_desc *k, struct err *e)
{
    (void)d;
    if (!k->block_size || k->block_size & (k->block_size - 1)) {
        err_set(e, ERR_VALIDATION, "KV block size %u: the CPU backend takes powers of two",
                k->block_size);
        return NULL;
    }
    if (!k->head_dim || k->head_dim > MAX_HEAD_DIM) {
        err_set(e, ERR_VALIDATION, "head dimension %u: the CPU backend takes up to %d", k->head_dim,
                MAX_HEAD_DIM);
        return NULL;
    }
    struct kv_cache *kv = calloc(1, sizeof(*kv));
    if (!kv)
        return err_nomem(e), NULL;
    kv->desc = *k;
    kv->panel_pos = (uint32_t)lanes_up(k->block_size);
    kv->panel_dim = (uint32_t)lanes_up(k->head_dim);
    kv->head_bytes = head_bytes(k);
    if (__builtin_mul_overflow((size_t)cpu_kv_block_bytes(k), (size_t)k->n_blocks, &kv->bytes) ||
        !(kv->data = cpu_map(kv->bytes))) {
        err_set(e, ERR_SYSTEM, "no memory for a KV cache of %u blocks", k->n_blocks);
        free(kv);
        return NULL;
    }
    kv->populate = cpu_populate(kv->data, kv->bytes);
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
    size_t stream_bytes = kv->desc.n_blocks * kv->head_bytes;
    for (uint32_t i = 0; i < n; i++) {
        if (src[i] >= kv->desc.n_blocks || dst[i] >= kv->desc.n_blocks)
            return err_set(e, ERR_VALIDATION, "copy of KV block %u to %u: there are %u", src[i],
                           dst[i], kv->desc.n_blocks);
        char *from = kv_head(kv, 0, src[i], false, 0), *to = kv_head(kv, 0, dst[i], false, 0);
        size_t streams = (size_t)2 * kv->desc.n_layers * kv->desc.n_kv_heads;
        for (size_t s = 0; src[i] != dst[i] && s < streams; s++)
            memcpy(to + s * stream_bytes, from + s * stream_bytes, kv->head_bytes);
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

/* Element (out, k) of a panel matrix whose panels are `k_len` long: see kernels.h. */
static size_t panel_index(enum dtype t, uint32_t out, uint32_t k, uint32_t k_len)
{
    size_t panel = (size_t)(out / LANES) * LANES * k_len, lane = out % LANES;
    return t == DT_BF16 ? panel + (size_t)(k & ~1u) * LANES + 2 * lane + (k & 1)
                        : panel + (size_t)k * LANES + lane;
}

/* One head of one token into its block: K as a column of panels over dimensions, V as a row. */
static void store_head(const struct rope_job *j, bool v, uint32_t head, uint32_t slot,
                       const float *x)
{
    const struct kv_cache *kv = j->kv;
    const struct kv_desc *k = &kv->desc;
    uint32_t at = slot % k->block_size;
    char *dst = kv_head(kv, j->layer, slot / k->block_size, v, head);
    uint16_t half[MAX_HEAD_DIM];
    if (k->dtype == DT_F16)
        j->d->kern.narrow_f16(half, x, k->head_dim);
    else if (k->dtype == DT_BF16)
        j->d->kern.narrow_bf16(half, x, k->head_dim);
    for (uint32_t i = 0; i < k->head_dim; i++) {
        size_t to = v ? panel_index(k->dtype, i, at, kv->panel_pos)
                      : panel_index(k->dtype, at, i, kv->panel_dim);
        if (k->dtype == DT_F32)
            ((float *)dst)[to] = x[i];
        else
            // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): narrow_*() filled it
            ((uint16_t *)dst)[to] = half[i];
    }
}

static void prepare_head(const struct rope_job *j, float *x, const float *norm, size_t token)
{
    const struct rope_kv *p = j->p;
    if (norm)
        j->d->kern.norm_rms(x, x, norm, NULL, p->head_dim, p->norm_eps);
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
            prepare_head(j, q + (size_t)h * p->head_dim, p->q_norm, t);
        for (uint32_t h = 0; h < p->n_kv_heads; h++) {
            prepare_head(j, k + (size_t)h * p->head_dim, p->k_norm, t);
            store_head(j, false, h, slot, k + (size_t)h * p->head_dim);
            store_head(j, true, h, slot, v + (size_t)h * p->head_dim);
        }
    }
}

/* Two tokens of one step may share a 32-bit pair of bf16 positions of V, but each thread writes
 * only its own 16 bits. */
void cpu_rope_kv(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                 const struct rope_kv *p)
{
    struct rope_job j = {d, qkv, kv, layer, p};
    pool_run(d->pool, rope_tokens, &j, d->batch->n_tokens, 4);
}
