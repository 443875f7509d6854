/* kv.c - the paged cache of K and V: its memory, copies of blocks, and blocks that are swapped out.
 */
#include "model-server/backend/cuda/cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a block of one stream: size of its numbers, in whole vectors, then the scales. Rows of values
 * are as far apart as those of keys. */
static size_t number_bytes(const struct kv_desc *k, const struct kv_layer *l)
{
    const uint32_t row = kv_row_numbers(k->dtype, l->k_dim);
    size_t n = kv_dtype_bytes(k->dtype, (size_t)k->block_size * l->n_heads * row);
    return kv_dtype_scaled(k->dtype) ? (n + 15) & ~(size_t)15 : n;
}

static size_t block_bytes(const struct kv_desc *k, const struct kv_layer *l)
{
    size_t scales = (size_t)k->block_size * l->n_heads * sizeof(float);
    return number_bytes(k, l) + (kv_dtype_scaled(k->dtype) ? scales : 0);
}

/* K and V; a latent value is part of its key. */
static uint32_t streams_of(const struct kv_layer *l) { return l->latent ? 1 : 2; }

/* The index keys of a layer, as a layer of keys alone. */
static struct kv_layer index_of(const struct kv_layer *l)
{
    return (struct kv_layer){.n_heads = 1, .k_dim = l->index_dim, .latent = true};
}

/* The entries of a layer, and blocks of this many. */
static struct kv_layer entries_of(const struct kv_layer *l)
{
    return (struct kv_layer){.n_heads = 1, .k_dim = l->k_dim, .latent = true};
}
static struct kv_desc entries_desc(const struct kv_desc *k, const struct kv_layer *l)
{
    struct kv_desc y = *k;
    y.block_size = l->every ? entry_rows(k->block_size, l->every) : 0;
    return y;
}

static struct kv_view view_of(const struct kv_cache *kv, const struct kv_place *p)
{
    return (struct kv_view){.k = kv->data + p->at,
                            .v = kv->data + p->at + (p->latent ? 0 : p->stream_bytes),
                            .block_bytes = (uint32_t)p->block_bytes,
                            .scales = p->scales,
                            .block_size = kv->desc.block_size,
                            .dtype = kv->desc.dtype,
                            .block_shift = (uint32_t)__builtin_ctz(kv->desc.block_size),
                            .rows = (uint32_t)(p->stream_bytes / p->block_bytes) *
                                    kv->desc.block_size * p->n_heads};
}

struct kv_view kv_view(const struct kv_cache *kv, uint32_t layer)
{
    return view_of(kv, &kv->places[layer]);
}

struct kv_view kv_index_view(const struct kv_cache *kv, uint32_t layer)
{
    return view_of(kv, &kv->places[kv->desc.n_layers + layer]);
}

struct kv_view kv_entry_view(const struct kv_cache *kv, uint32_t layer, uint32_t every)
{
    struct kv_view v = view_of(kv, &kv->places[2 * kv->desc.n_layers + layer]);
    v.block_size = entry_rows(kv->desc.block_size, every);
    return v;
}

uint64_t cuda_kv_block_bytes(const struct kv_desc *k)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < k->n_layers; i++) {
        const struct kv_layer *l = kv_layer(k, i), index = index_of(l), entries = entries_of(l);
        const struct kv_desc few = entries_desc(k, l);
        bytes += l->every ? block_bytes(&few, &entries) : 0;
        bytes += streams_of(l) * (uint64_t)block_bytes(k, l);
        bytes += l->index_dim ? block_bytes(k, &index) : 0;
    }
    return bytes;
}

static int check_layer(const struct kv_desc *k, const struct kv_layer *l, struct err *e)
{
    if (l->n_heads &&
        (!l->k_dim || l->k_dim > ANY_HEAD_DIM || !l->v_dim || l->v_dim > ANY_VALUE_DIM))
        return err_set(
            e, ERR_VALIDATION,
            "head dimension %u: the CUDA backend takes keys up to %d and values up to %d", l->k_dim,
            ANY_HEAD_DIM, ANY_VALUE_DIM);
    if (l->v_dim > l->k_dim || (l->latent && l->n_heads != 1))
        return err_set(e, ERR_VALIDATION,
                       "values of %u beside keys of %u: the CUDA backend takes no wider ones",
                       l->v_dim, l->k_dim);
    if (l->index_dim > INDEX_MOST_DIM)
        return err_set(e, ERR_VALIDATION, "index keys of %u: the CUDA backend takes up to %d",
                       l->index_dim, INDEX_MOST_DIM);
    if (k->dtype == KV_I4 && (l->index_dim || l->every))
        return err_set(e, ERR_VALIDATION,
                       "--kv-cache-dtype int4: the CUDA backend has no sparse attention in 4 bits "
                       "(int8 and fp8 have it)");
    if (block_bytes(k, l) > UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "KV blocks of %zu bytes a layer: too large",
                       block_bytes(k, l));
    return 0;
}

static int check(const struct device *d, const struct kv_desc *k, struct err *e)
{
    if ((unsigned)k->dtype >= KV_N)
        return err_set(e, ERR_VALIDATION, "unknown type of the KV cache");
    if (!k->block_size || k->block_size & (k->block_size - 1))
        return err_set(e, ERR_VALIDATION, "KV block size %u: the CUDA backend takes powers of two",
                       k->block_size);
    if (kv_dtype_scaled(k->dtype) && k->block_size < SCALES_AT_ONCE)
        return err_set(e, ERR_VALIDATION,
                       "KV block size %u: a cache in 8 bits or less takes powers of two from %d on",
                       k->block_size, SCALES_AT_ONCE);
    if (d->n_kv && d->kv_block_size != k->block_size)
        return err_set(e, ERR_VALIDATION, "KV block size %u: this device has a cache of %u",
                       k->block_size, d->kv_block_size);
    for (uint32_t i = 0; i < k->n_layers; i++)
        if (check_layer(k, kv_layer(k, i), e))
            return -1;
    return 0;
}

/* Adjacent layers of one shape are one run. */
static struct kv_place place_next(struct kv_cache *kv, const struct kv_desc *k,
                                  const struct kv_layer *l)
{
    const size_t block = block_bytes(k, l), stream = k->n_blocks * block;
    const struct kv_place place = {
        kv->bytes,  block,     stream,
        l->k_dim,   l->v_dim,  kv_dtype_scaled(k->dtype) ? (uint32_t)number_bytes(k, l) : 0,
        l->n_heads, l->latent, l->every};
    struct kv_run *r = kv->n_runs ? &kv->runs[kv->n_runs - 1] : NULL;
    if (!r || r->block_bytes != block) {
        r = &kv->runs[kv->n_runs++];
        *r = (struct kv_run){kv->bytes, block, stream, kv->slot_bytes, 0};
    }
    r->streams += streams_of(l);
    kv->bytes += streams_of(l) * stream;
    kv->slot_bytes += streams_of(l) * block;
    return place;
}

/* Lays out the layers one after the other, then their index keys, then their entries. */
static int lay_out(struct kv_cache *kv, const struct kv_desc *k, struct err *e)
{
    const uint32_t n = k->n_layers;
    kv->places = calloc(3 * (size_t)n + 1, sizeof(*kv->places));
    kv->runs = calloc(3 * (size_t)n + 1, sizeof(*kv->runs));
    if (!kv->places || !kv->runs)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        if (kv_layer(k, i)->n_heads)
            kv->places[i] = place_next(kv, k, kv_layer(k, i));
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_layer index = index_of(kv_layer(k, i));
        if (index.k_dim)
            kv->places[n + i] = place_next(kv, k, &index);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_layer *l = kv_layer(k, i), entries = entries_of(l);
        const struct kv_desc few = entries_desc(k, l);
        if (l->every)
            kv->places[2 * n + i] = place_next(kv, &few, &entries);
    }
    return 0;
}

static void kv_discard(struct kv_cache *kv)
{
    if (kv->data)
        cudaFree(kv->data);
    free(kv->places), free(kv->runs);
    free(kv);
}

struct kv_cache *cuda_kv_new(struct device *d, const struct kv_desc *k, struct err *e)
{
    char what[64];
    if (check(d, k, e))
        return NULL;
    struct kv_cache *kv = calloc(1, sizeof(*kv));
    if (!kv)
        return err_nomem(e), NULL;
    kv->desc = *k;
    kv->desc.layers = NULL;
    snprintf(what, sizeof(what), "a KV cache of %u blocks", k->n_blocks);
    if (lay_out(kv, k, e) ||
        !(kv->data =
              cuda_take(d, kv->bytes, what, "lower --kv-cache-memory or --max-total-tokens", e))) {
        kv_discard(kv);
        return NULL;
    }
    cudaError_t rc = cudaMemsetAsync(kv->data, 0, kv->bytes, d->stream);
    if (rc != cudaSuccess) {
        cuda_failed(d, rc, "clearing the KV cache", e);
        kv_discard(kv);
        return NULL;
    }
    d->n_kv++;
    d->kv_block_size = k->block_size;
    return kv;
}

void cuda_kv_free(struct device *d, struct kv_cache *kv)
{
    if (!kv)
        return;
    d->n_kv--;
    kv_discard(kv);
}

/* Copies of one launch run concurrently: none may read what another one writes. */
static uint32_t independent(const uint32_t *src, const uint32_t *dst, uint32_t n)
{
    for (uint32_t i = 1; i < n && i < KV_COPIES; i++)
        for (uint32_t j = 0; j < i; j++)
            if (src[i] == dst[j] || dst[i] == src[j] || dst[i] == dst[j])
                return i;
    return n < KV_COPIES ? n : KV_COPIES;
}

static int copy_some(struct device *d, struct kv_cache *kv, const uint32_t *src,
                     const uint32_t *dst, uint32_t n, struct err *e)
{
    if (outbox_next(d, &d->copies, (size_t)n * 8, "a list of blocks", "lower --kv-cache-memory", e))
        return -1;
    uint32_t *list = (uint32_t *)(void *)outbox_host(&d->copies);
    const uint32_t *dev = (const uint32_t *)(void *)d->copies.dev;
    memcpy(list, src, (size_t)n * 4);
    memcpy(list + n, dst, (size_t)n * 4);
    cuda_flush(d, false);
    outbox_send(d, &d->copies, (size_t)n * 8);
    for (uint32_t i = 0; i < kv->n_runs; i++) {
        const struct kv_run *r = &kv->runs[i];
        struct kv_copy_args a = {.data = kv->data + r->at,
                                 .src = dev,
                                 .dst = dev + n,
                                 .stream_bytes = r->stream_bytes,
                                 .block_bytes = r->block_bytes,
                                 .n = n,
                                 .streams = r->streams};
        RECORD(d, kv_copy_launch, a);
    }
    cuda_flush(d, false);
    if (d->fault.kind == ERR_NONE)
        return 0;
    *e = d->fault;
    d->fault = (struct err)ERR_INIT;
    return -1;
}

int cuda_kv_copy(struct device *d, struct kv_cache *kv, const uint32_t *src, const uint32_t *dst,
                 uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (src[i] >= kv->desc.n_blocks || dst[i] >= kv->desc.n_blocks)
            return err_set(e, ERR_VALIDATION, "copy of KV block %u to %u: there are %u", src[i],
                           dst[i], kv->desc.n_blocks);
    for (uint32_t i = 0, some; i < n; i += some) {
        some = independent(src + i, dst + i, n - i);
        if (copy_some(d, kv, src + i, dst + i, some, e))
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- swap */

void *cuda_host_alloc(struct device *d, size_t bytes, struct err *e)
{
    void *p = NULL;
    cudaError_t rc = cudaMallocHost(&p, bytes);
    if (rc == cudaSuccess)
        return p;
    cudaGetLastError(); /* clears the error of a failed allocation */
    cuda_failed(d, rc, "page-locked memory for swapped KV blocks", e);
    return NULL;
}

void cuda_host_free(struct device *d, void *p, size_t bytes)
{
    (void)d, (void)bytes;
    cudaFreeHost(p); /* waits for what uses it */
}

/* A block's streams are adjacent in its slot. */
static cudaError_t transfer_run(struct device *d, const struct kv_run *r, char *dev, char *slot,
                                bool out)
{
    const size_t piece = r->block_bytes;
    return out ? cudaMemcpy2DAsync(slot, piece, dev, r->stream_bytes, piece, r->streams,
                                   cudaMemcpyDeviceToHost, d->stream)
               : cudaMemcpy2DAsync(dev, r->stream_bytes, slot, piece, piece, r->streams,
                                   cudaMemcpyHostToDevice, d->stream);
}

static int transfer(struct device *d, struct kv_cache *kv, const uint32_t *blocks, char *host,
                    const uint32_t *slots, uint32_t n, bool out, struct err *e)
{
    cuda_flush(d, false);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < kv->n_runs; j++) {
            const struct kv_run *r = &kv->runs[j];
            char *dev = kv->data + r->at + blocks[i] * r->block_bytes;
            char *slot = host + slots[i] * kv->slot_bytes + r->in_slot;
            cudaError_t rc = transfer_run(d, r, dev, slot, out);
            if (rc != cudaSuccess)
                return cuda_failed(d, rc, "moving KV blocks", e);
        }
    return 0;
}

int cuda_kv_read(struct device *d, struct kv_cache *kv, const uint32_t *blocks, void *host,
                 const uint32_t *slots, uint32_t n, struct err *e)
{
    return transfer(d, kv, blocks, host, slots, n, true, e);
}

int cuda_kv_write(struct device *d, struct kv_cache *kv, const uint32_t *blocks, const void *host,
                  const uint32_t *slots, uint32_t n, struct err *e)
{
    return transfer(d, kv, blocks, (char *)(uintptr_t)host, slots, n, false, e);
}
