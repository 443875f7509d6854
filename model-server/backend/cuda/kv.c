/* kv.c - the paged cache of K and V: its memory, copies of blocks, and blocks that make way. */
#include "model-server/backend/cuda/cuda.h"
#include <stdio.h>
#include <stdlib.h>

/* Of a block of one stream: its numbers, whole vectors of them, then the scales. */
static size_t number_bytes(const struct kv_desc *k)
{
    size_t n = (size_t)k->block_size * k->n_kv_heads * k->head_dim * kv_dtype_size(k->dtype);
    return kv_dtype_scaled(k->dtype) ? (n + 15) & ~(size_t)15 : n;
}

static size_t block_bytes(const struct kv_desc *k)
{
    size_t scales = (size_t)k->block_size * k->n_kv_heads * sizeof(float);
    return number_bytes(k) + (kv_dtype_scaled(k->dtype) ? scales : 0);
}

struct kv_view kv_view(const struct kv_cache *kv, uint32_t layer)
{
    char *k = kv->data + (size_t)layer * 2 * kv->stream_bytes;
    return (struct kv_view){
        .k = k,
        .v = k + kv->stream_bytes,
        .block_bytes = (uint32_t)kv->block_bytes,
        .scales = kv_dtype_scaled(kv->desc.dtype) ? (uint32_t)number_bytes(&kv->desc) : 0,
        .block_size = kv->desc.block_size,
        .dtype = kv->desc.dtype};
}

uint64_t cuda_kv_block_bytes(const struct kv_desc *k)
{
    return (uint64_t)2 * k->n_layers * block_bytes(k);
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
                       "KV block size %u: a cache in 8 bits takes powers of two from %d on",
                       k->block_size, SCALES_AT_ONCE);
    if (!k->head_dim || k->head_dim > ANY_HEAD_DIM)
        return err_set(e, ERR_VALIDATION, "head dimension %u: the CUDA backend takes up to %d",
                       k->head_dim, ANY_HEAD_DIM);
    if (d->n_kv && d->kv_block_size != k->block_size)
        return err_set(e, ERR_VALIDATION, "KV block size %u: this device has a cache of %u",
                       k->block_size, d->kv_block_size);
    return 0;
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
    if ((kv->block_bytes = block_bytes(k)) > UINT32_MAX) {
        err_set(e, ERR_VALIDATION, "KV blocks of %zu bytes a layer: too large", kv->block_bytes);
        free(kv);
        return NULL;
    }
    kv->stream_bytes = k->n_blocks * kv->block_bytes;
    kv->bytes = (size_t)2 * k->n_layers * kv->stream_bytes;
    snprintf(what, sizeof(what), "a KV cache of %u blocks", k->n_blocks);
    kv->data = cuda_take(d, kv->bytes, what, "lower --kv-cache-memory or --max-total-tokens", e);
    if (!kv->data) {
        free(kv);
        return NULL;
    }
    cudaError_t rc = cudaMemsetAsync(kv->data, 0, kv->bytes, d->stream);
    if (rc != cudaSuccess) {
        cuda_failed(d, rc, "clearing the KV cache", e);
        cudaFree(kv->data);
        free(kv);
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
    cudaFree(kv->data);
    free(kv);
}

/* Copies of one launch run at the same time: none may read what another writes. */
static uint32_t independent(const uint32_t *src, const uint32_t *dst, uint32_t n)
{
    enum { MOST = 1024 };
    for (uint32_t i = 1; i < n && i < MOST; i++)
        for (uint32_t j = 0; j < i; j++)
            if (src[i] == dst[j] || dst[i] == src[j] || dst[i] == dst[j])
                return i;
    return n < MOST ? n : MOST;
}

static int copy_some(struct device *d, struct kv_cache *kv, const uint32_t *src,
                     const uint32_t *dst, uint32_t n, struct err *e)
{
    uint32_t *list = cuda_take(d, (size_t)n * 8, "a list of blocks", "lower --kv-cache-memory", e);
    if (!list)
        return -1;
    int rc = cuda_upload(d, list, src, (size_t)n * 4, e);
    if (rc == 0)
        rc = cuda_upload(d, list + n, dst, (size_t)n * 4, e);
    if (rc == 0) {
        struct kv_copy_args a = {.data = kv->data,
                                 .src = list,
                                 .dst = list + n,
                                 .stream_bytes = kv->stream_bytes,
                                 .block_bytes = kv->block_bytes,
                                 .n = n,
                                 .streams = 2 * kv->desc.n_layers};
        RECORD(d, kv_copy_launch, a);
        cuda_flush(d, false);
    }
    cudaFree(list); /* waits for the copy */
    return rc;
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
    cudaGetLastError(); /* an allocation that failed is no lasting error */
    cuda_failed(d, rc, "page-locked memory for KV blocks that make way", e);
    return NULL;
}

void cuda_host_free(struct device *d, void *p, size_t bytes)
{
    (void)d, (void)bytes;
    cudaFreeHost(p); /* waits for what uses it */
}

/* A block's streams lie side by side in its slot. */
static int transfer(struct device *d, struct kv_cache *kv, const uint32_t *blocks, char *host,
                    const uint32_t *slots, uint32_t n, bool out, struct err *e)
{
    const size_t streams = (size_t)2 * kv->desc.n_layers, piece = kv->block_bytes;
    cuda_flush(d, false);
    for (uint32_t i = 0; i < n; i++) {
        char *dev = kv->data + blocks[i] * piece, *slot = host + slots[i] * streams * piece;
        cudaError_t rc = out ? cudaMemcpy2DAsync(slot, piece, dev, kv->stream_bytes, piece, streams,
                                                 cudaMemcpyDeviceToHost, d->stream)
                             : cudaMemcpy2DAsync(dev, kv->stream_bytes, slot, piece, piece, streams,
                                                 cudaMemcpyHostToDevice, d->stream);
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
