/* kv.c - the paged cache of K and V, and the operation that fills it. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/hadamard.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t stream_block_bytes(const struct kv_desc *k, uint32_t dim)
{
    return k->block_size / KV_PAGE * kv_page_bytes(k->dtype, dim);
}

/* Entries are rows of numbers, dimension after dimension: attention copies them (entries.c). */
static size_t entries_block_bytes(const struct kv_desc *k, const struct kv_layer *l)
{
    return entry_rows(k->block_size, l->every) * kv_entry_bytes(k->dtype, l->k_dim);
}

static uint32_t streams_of(const struct kv_layer *l)
{
    return 2 * l->n_heads + (l->index_dim > 0) + (l->every > 0);
}

uint64_t cpu_kv_block_bytes(const struct kv_desc *k)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < k->n_layers; i++) {
        const struct kv_layer *l = kv_layer(k, i);
        bytes += l->n_heads *
                 (uint64_t)(stream_block_bytes(k, l->k_dim) + stream_block_bytes(k, l->v_dim));
        if (l->index_dim)
            bytes += stream_block_bytes(k, l->index_dim);
        bytes += l->every ? entries_block_bytes(k, l) : 0;
    }
    return bytes;
}

static int check_desc(const struct kv_desc *k, struct err *e)
{
    if (k->block_size < KV_PAGE || k->block_size & (k->block_size - 1))
        return err_set(e, ERR_VALIDATION,
                       "KV block size %u: the CPU backend takes powers of two from %d on",
                       k->block_size, KV_PAGE);
    for (uint32_t i = 0; i < k->n_layers; i++) {
        const struct kv_layer *l = kv_layer(k, i);
        const uint32_t kv = l->k_dim > l->v_dim ? l->k_dim : l->v_dim;
        const uint32_t most = kv > l->index_dim ? kv : l->index_dim;
        assert(!l->every || (l->n_heads == 1 && l->k_dim == l->v_dim));
        if ((l->n_heads && (!l->k_dim || !l->v_dim)) || most > MAX_HEAD_DIM)
            return err_set(e, ERR_VALIDATION, "head dimension %u: the CPU backend takes up to %d",
                           most, MAX_HEAD_DIM);
    }
    if ((unsigned)k->dtype >= KV_N)
        return err_set(e, ERR_VALIDATION, "unknown type of the KV cache");
    return 0;
}

/* Assigns the streams, one after the other, each with all blocks. */
static int lay_out(struct kv_cache *kv, const struct kv_desc *k, struct err *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_layers; i++)
        n += streams_of(kv_layer(k, i));
    kv->n_streams = n;
    kv->first = calloc(k->n_layers + (size_t)1, sizeof(*kv->first));
    kv->n_heads = calloc(k->n_layers + (size_t)1, sizeof(*kv->n_heads));
    kv->every = calloc(k->n_layers + (size_t)1, sizeof(*kv->every));
    kv->streams = calloc(n + (size_t)1, sizeof(*kv->streams));
    if (!kv->first || !kv->n_heads || !kv->every || !kv->streams)
        return err_nomem(e);
    size_t at = 0;
    for (uint32_t i = 0, s = 0; i < k->n_layers; i++) {
        const struct kv_layer *l = kv_layer(k, i);
        kv->first[i] = s;
        kv->n_heads[i] = l->n_heads;
        kv->every[i] = l->every;
        const uint32_t pages = 2 * l->n_heads + (l->index_dim > 0);
        for (uint32_t h = 0; h < pages; h++, s++) {
            const uint32_t dim = h < l->n_heads       ? l->k_dim
                                 : h < 2 * l->n_heads ? l->v_dim
                                                      : l->index_dim;
            kv->streams[s] = (struct kv_stream){kv->data + at, dim, kv_page_bytes(k->dtype, dim),
                                                stream_block_bytes(k, dim)};
            at += k->n_blocks * kv->streams[s].block_bytes;
        }
        if (l->every) {
            kv->streams[s] =
                (struct kv_stream){kv->data + at, l->k_dim, kv_entry_bytes(k->dtype, l->k_dim),
                                   entries_block_bytes(k, l)};
            at += k->n_blocks * kv->streams[s++].block_bytes;
        }
    }
    return 0;
}

static int take_memory(struct device *d, struct kv_cache *kv, const struct kv_desc *k,
                       struct err *e)
{
    kv->block_bytes = (size_t)cpu_kv_block_bytes(k);
    if (__builtin_mul_overflow(kv->block_bytes, (size_t)k->n_blocks, &kv->bytes) ||
        !(kv->data = cpu_map(kv->bytes)))
        return err_set(e, ERR_SYSTEM,
                       "no memory for a KV cache of %u blocks, %llu bytes: lower --kv-cache-memory",
                       k->n_blocks, (unsigned long long)kv->block_bytes * k->n_blocks);
    return lay_out(kv, k, e) || cpu_populate_front(d, kv, e) ? -1 : 0;
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
    kv->desc.layers = NULL;
    while ((uint32_t)KV_PAGE << kv->page_shift < k->block_size)
        kv->page_shift++;
    if (take_memory(d, kv, k, e)) {
        cpu_kv_free(d, kv);
        return NULL;
    }
    kv->populate = cpu_populate(d, kv);
    return kv;
}

void cpu_kv_free(struct device *d, struct kv_cache *kv)
{
    (void)d;
    if (!kv)
        return;
    cpu_populate_end(kv->populate);
    if (kv->data)
        cpu_unmap(kv->data, kv->bytes);
    free(kv->first), free(kv->n_heads), free(kv->every), free(kv->streams);
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
        for (uint32_t s = 0; src[i] != dst[i] && s < kv->n_streams; s++) {
            const struct kv_stream *t = &kv->streams[s];
            memcpy(t->data + dst[i] * t->block_bytes, t->data + src[i] * t->block_bytes,
                   t->block_bytes);
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

/* The nibbles of a token share no byte with those of another token. */
static void put_nibble(char *page, size_t at, uint8_t code)
{
    uint8_t *b = (uint8_t *)page + at / 2;
    const int shift = at % 2 * 4;
    *b = (uint8_t)((*b & ~(15 << shift)) | code << shift);
}

static void put_key(char *page, enum kv_dtype t, uint32_t at, uint32_t dim, const void *x)
{
    for (uint32_t i = 0; t == KV_F32 && i < dim; i++)
        ((float *)(void *)page)[kv_key_at(KV_F32, at, i)] = ((const float *)x)[i];
    for (uint32_t i = 0; t != KV_F32 && i < dim; i++) {
        size_t to = kv_key_at(t, at, i);
        if (t == KV_I4)
            put_nibble(page, to, ((const uint8_t *)x)[i]);
        else if (kv_dtype_scaled(t))
            ((uint8_t *)page)[to] = ((const uint8_t *)x)[i];
        else
            ((uint16_t *)(void *)page)[to] = ((const uint16_t *)x)[i];
    }
}

static void put_value(char *page, enum kv_dtype t, uint32_t at, uint32_t dim, const void *x)
{
    if (!kv_dtype_paired(t)) {
        memcpy(page + kv_dtype_bytes(t, kv_value_at(t, dim, at, 0)), x, kv_dtype_bytes(t, dim));
        return;
    }
    for (uint32_t i = 0; t == KV_I4 && i < dim; i++)
        put_nibble(page, kv_value_at(t, dim, at, i), ((const uint8_t *)x)[i]);
    for (uint32_t i = 0; t != KV_I4 && i < dim; i++)
        ((uint16_t *)(void *)page)[kv_value_at(t, dim, at, i)] = ((const uint16_t *)x)[i];
}

/* Rounded to even, in [-8, 7]. */
static inline float int4_of(float steps)
{
    const float magic = 0x1.8p23f, n = steps + magic - magic;
    return n < -8 ? -8 : n > 7 ? 7 : n;
}

/* Squared error of rounding to steps of 1 / to. v has zeros up to a multiple of INT4_LANES: a
 * separate sum for each lane keeps the processor's units busy. */
enum { INT4_LANES = 16 };
static inline float lost_by(const float *v, uint32_t dim, float to)
{
    float sum[INT4_LANES] = {0}, all = 0;
    const float step = 1 / to;
    for (uint32_t at = 0; at < dim; at += INT4_LANES)
        for (uint32_t i = 0; i < INT4_LANES; i++) {
            const float d = int4_of(v[at + i] * to) * step - v[at + i];
            sum[i] += d * d;
        }
    for (uint32_t i = 0; i < INT4_LANES; i++)
        all += sum[i];
    return all;
}

/* The number of steps per unit with the smallest error, among those that put the greatest
 * magnitude between -7 and -11: clipping a few numbers may cost less than wide steps for all. */
static inline float best_steps(const float *v, uint32_t dim, float most)
{
    float best = 0, least = INFINITY;
    for (int most_as = 14; most_as <= 22; most_as++) {
        const float to = (float)-most_as / 2 / most, lost = lost_by(v, dim, to);
        if (lost < least)
            least = lost, best = to;
    }
    return best;
}

/* H x as codes of 0 to 15, one per byte. The number is (code - 8) * the returned scale * n
 * (hadamard.h). If a number is not finite the scale is NaN. */
static float rotate_and_quantise(uint8_t *code, const float *x, uint32_t dim)
{
    _Alignas(64) float v[MAX_HEAD_DIM + INT4_LANES], most = 0;
    memcpy(v, x, dim * sizeof(*v));
    memset(v + dim, 0, INT4_LANES * sizeof(*v));
    hadamard(v, dim, 1);
    bool finite = true;
    for (uint32_t i = 0; i < dim; i++) {
        finite &= isfinite(v[i]) != 0;
        most = fabsf(v[i]) > fabsf(most) ? v[i] : most;
    }
    const bool some = finite && fabsf(most) >= 0x1p-60f && fabsf(most) <= 0x1p60f;
    const float to = some ? best_steps(v, dim, most) : 0;
    for (uint32_t i = 0; i < dim; i++)
        code[i] = some ? (uint8_t)(int4_of(v[i] * to) + 8) : 8;
    return !finite ? NAN : some ? 1 / to / (float)hadamard_size(dim) : 0;
}

const void *kv_narrow(const struct kernels *kern, enum kv_dtype t, union kv_narrow *small,
                      const float *x, uint32_t dim, float *scale)
{
    int32_t unused;
    *scale = 1;
    switch (t) {
    case KV_F16:
        kern->narrow_f16(small->half, x, dim);
        break;
    case KV_BF16:
        kern->narrow_bf16(small->half, x, dim);
        break;
    case KV_I8:
        *scale = kern->quantise(small->byte, 4, x, dim, 0, &unused);
        break;
    case KV_FP8:
        *scale = kern->quantise_fp8(small->byte, x, dim);
        break;
    case KV_I4:
        *scale = rotate_and_quantise(small->byte, x, dim);
        break;
    default:
        return x;
    }
    return small;
}

void kv_put(char *page, enum kv_dtype t, bool v, uint32_t at, uint32_t dim, const void *x,
            float scale)
{
    if (kv_dtype_scaled(t))
        kv_scales(page, t, dim)[at] = scale;
    (v ? put_value : put_key)(page, t, at, dim, x);
}

void kv_store(const struct kernels *kern, enum kv_dtype t, const struct kv_stream *stream, bool v,
              uint32_t slot, const float *x)
{
    char *page = stream->data + (size_t)(slot / KV_PAGE) * stream->page_bytes;
    union kv_narrow small;
    float scale;
    const void *from = kv_narrow(kern, t, &small, x, stream->dim, &scale);
    kv_put(page, t, v, slot % KV_PAGE, stream->dim, from, scale);
}

static void store_head(const struct kernels *kern, const struct kv_cache *kv, uint32_t layer,
                       bool v, uint32_t head, uint32_t slot, const float *x)
{
    kv_store(kern, kv->desc.dtype, kv_stream(kv, layer, v, head), v, slot, x);
}

/* Head `head` of q (part 0), k (1) or v (2). */
static void norm_head(const struct rope_job *j, float *x, int part, uint32_t head, size_t token)
{
    const struct rope_kv *p = j->p;
    const float *w = part == 2 ? p->v_norm : part ? p->k_norm : p->q_norm;
    const float *b = part ? p->k_norm_bias : p->q_norm_bias;
    if (part == 2) {
        const uint32_t dim = kv_stream(j->kv, j->layer, true, head)->dim;
        j->d->kern.norm_rms(x, x, w, NULL, dim, p->norm_eps);
        return;
    }
    if (p->norm_by_head || p->squares)
        w += (size_t)head * p->head_dim;
    if (p->norm_by_head && b)
        b += (size_t)head * p->head_dim;
    if (!p->squares) {
        const bool layer = p->norm_kind == NORM_LAYER;
        (layer ? j->d->kern.norm_layer : j->d->kern.norm_rms)(x, x, w, b, p->head_dim, p->norm_eps);
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
    const bool norm = part ? p->k_norm : p->q_norm;
    if (norm && !p->norm_last)
        norm_head(j, x, part, head, token);
    if (p->rope && p->rot_dim)
        j->d->kern.rotate(x, p->rope + token * p->rot_dim, p->rot_dim, p->interleaved);
    if (norm && p->norm_last)
        norm_head(j, x, part, head, token);
}

/* A row of q, k and v. */
struct qkv_row {
    float *q, *k, *v;
    size_t v_dim, width;
};

static struct qkv_row qkv_row(const struct rope_job *j, size_t token)
{
    const struct rope_kv *p = j->p;
    const size_t v_dim = p->n_kv_heads ? kv_stream(j->kv, j->layer, true, 0)->dim : 0;
    const size_t width = (size_t)(p->n_heads + p->n_kv_heads) * p->head_dim + p->n_kv_heads * v_dim;
    float *q = j->qkv + token * width, *k = q + (size_t)p->n_heads * p->head_dim;
    return (struct qkv_row){q, k, k + (size_t)p->n_kv_heads * p->head_dim, v_dim, width};
}

/* Clips, normalises and rotates. */
static void prepare_token(const struct rope_job *j, size_t t)
{
    const struct rope_kv *p = j->p;
    const struct qkv_row r = qkv_row(j, t);
    for (size_t i = 0; p->clip > 0.0f && i < r.width; i++) /* NaN stays NaN */
        r.q[i] = r.q[i] > p->clip ? p->clip : r.q[i] < -p->clip ? -p->clip : r.q[i];
    for (uint32_t h = 0; h < p->n_heads; h++)
        prepare_head(j, r.q + (size_t)h * p->head_dim, 0, h, t);
    if (p->q_scale)
        j->d->kern.soft_cap(r.q, p->n_heads * p->head_dim, p->q_scale[t], 0.0f);
    for (uint32_t h = 0; h < p->n_kv_heads; h++) {
        prepare_head(j, r.k + (size_t)h * p->head_dim, 1, h, t);
        if (p->v_norm)
            norm_head(j, r.v + h * r.v_dim, 2, h, t);
    }
}

/* Head by head, since a page of a head has some tokens: its lines stay in the L1 cache. */
static void store_tokens(const struct rope_job *j, size_t begin, size_t end)
{
    const uint32_t *slots = kv_slots(&j->kv->desc, j->d->batch), dim = j->p->head_dim;
    for (uint32_t h = 0; h < j->p->n_kv_heads; h++)
        for (size_t t = begin; t < end; t++) {
            const struct qkv_row r = qkv_row(j, t);
            store_head(&j->d->kern, j->kv, j->layer, false, h, slots[t], r.k + (size_t)h * dim);
            store_head(&j->d->kern, j->kv, j->layer, true, h, slots[t], r.v + h * r.v_dim);
        }
}

static void rope_tokens(void *arg, int thread, size_t begin, size_t end)
{
    const struct rope_job *j = arg;
    (void)thread;
    for (size_t t = begin, next; t < end; t = next) {
        next = t + KV_PAGE < end ? t + KV_PAGE : end;
        for (size_t i = t; i < next; i++)
            prepare_token(j, i);
        store_tokens(j, t, next);
    }
}

void cpu_rope_kv(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                 const struct rope_kv *p)
{
    struct rope_job j = {d, qkv, kv, layer, p};
    pool_run(d->pool, rope_tokens, &j, d->batch->n_tokens, 4);
}

/* ---------------------------------------------------------------- latent_kv */

struct latent_job {
    struct device *d;
    float *q;
    const float *kv;
    struct kv_cache *cache;
    uint32_t layer;
    const struct latent_kv *p;
};

static void latent_query(const struct latent_job *j, size_t token, uint32_t head)
{
    const struct latent_kv *p = j->p;
    const size_t at = token * p->n_heads + head;
    float *q = j->q + at * (p->rank + p->rot_dim);
    memcpy(q, p->latent + at * p->rank, p->rank * sizeof(*q));
    memcpy(q + p->rank, p->turned + at * p->rot_dim, p->rot_dim * sizeof(*q));
    if (p->rope)
        j->d->kern.rotate(q + p->rank, p->rope + token * p->rot_dim, p->rot_dim, p->interleaved);
    if (p->q_scale)
        j->d->kern.soft_cap(q, p->rank + p->rot_dim, p->q_scale[token], 0.0f);
}

/* The value is stored separately from the key that contains it: pages of keys and of values have
 * different layouts (kv_page.h). */
static void latent_key(const struct latent_job *j, size_t token)
{
    const struct latent_kv *p = j->p;
    const struct kernels *kern = &j->d->kern;
    const uint32_t slot = kv_slots(&j->cache->desc, j->d->batch)[token];
    const float *kv = j->kv + token * (p->rank + p->rot_dim);
    _Alignas(64) float key[MAX_HEAD_DIM];
    assert(j->kv);
    kern->norm_rms(key, kv, p->norm, NULL, p->rank, p->eps);
    if (p->turn_norm)
        kern->norm_rms(key + p->rank, kv + p->rank, p->turn_norm, NULL, p->rot_dim, p->eps);
    else
        memcpy(key + p->rank, kv + p->rank, p->rot_dim * sizeof(*key));
    if (p->rope)
        kern->rotate(key + p->rank, p->rope + token * p->rot_dim, p->rot_dim, p->interleaved);
    store_head(kern, j->cache, j->layer, false, 0, slot, key);
    store_head(kern, j->cache, j->layer, true, 0, slot, key);
}

/* Items: the heads of a token, then its key. */
static void latent_items(void *arg, int thread, size_t begin, size_t end)
{
    const struct latent_job *j = arg;
    const uint32_t each = j->p->n_heads + (j->kv ? 1 : 0);
    (void)thread;
    for (size_t i = begin; i < end; i++)
        if (i % each < j->p->n_heads)
            latent_query(j, i / each, (uint32_t)(i % each));
        else
            latent_key(j, i / each);
}

void cpu_latent_kv(struct device *d, float *q, const float *kv, struct kv_cache *cache,
                   uint32_t layer, const struct latent_kv *p)
{
    enum { GRAIN = 32 };
    struct latent_job j = {d, q, kv, cache, layer, p};
    const size_t each = p->n_heads + (kv ? 1 : 0);
    pool_run(d->pool, latent_items, &j, d->batch->n_tokens * each, GRAIN);
}
