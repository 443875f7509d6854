/* staging.c - copies between host and device through two pinned buffers, so that filling one
 * overlaps sending the other. */
#include "model-server/backend/cuda/cuda.h"
#include <string.h>

enum { STAGING_BYTES = 16 << 20 };

int staging_open(struct device *d, struct err *e)
{
    for (int i = 0; i < 2; i++) {
        cudaError_t rc = cudaMallocHost((void **)&d->staging.host[i], STAGING_BYTES);
        if (rc == cudaSuccess)
            rc = cudaEventCreateWithFlags(&d->staging.done[i], cudaEventDisableTiming);
        if (rc != cudaSuccess)
            return cuda_failed(d, rc, "pinned memory for copies", e);
    }
    return 0;
}

void staging_close(struct device *d)
{
    for (int i = 0; i < 2; i++) {
        if (d->staging.done[i])
            cudaEventDestroy(d->staging.done[i]);
        cudaFreeHost(d->staging.host[i]);
    }
}

int cuda_upload_rows(struct device *d, void *dst, size_t rows, size_t row_bytes,
                     void (*fill)(void *arg, char *dst, size_t first, size_t n), void *arg,
                     struct err *e)
{
    struct staging *s = &d->staging;
    size_t most = STAGING_BYTES / row_bytes;
    if (!most)
        return err_set(e, ERR_VALIDATION, "rows of %zu bytes are too long to be copied", row_bytes);
    cuda_flush(d, false);
    for (size_t first = 0, n; first < rows; first += n) {
        int i = s->next;
        n = rows - first < most ? rows - first : most;
        cudaError_t rc = cudaEventSynchronize(s->done[i]); /* its last copy has left */
        if (rc == cudaSuccess) {
            fill(arg, s->host[i], first, n);
            rc = cudaMemcpyAsync((char *)dst + first * row_bytes, s->host[i], n * row_bytes,
                                 cudaMemcpyHostToDevice, d->stream);
        }
        if (rc == cudaSuccess)
            rc = cudaEventRecord(s->done[i], d->stream);
        if (rc != cudaSuccess)
            return cuda_failed(d, rc, "copying to the device", e);
        s->next = !i;
    }
    return 0;
}

struct bytes {
    const char *src;
    size_t n;
};

/* Rows of 4 KiB, the last one shorter. */
enum { PIECE = 4096 };
static void fill_bytes(void *arg, char *dst, size_t first, size_t n)
{
    const struct bytes *b = arg;
    size_t at = first * PIECE, len = n * PIECE;
    memcpy(dst, b->src + at, b->n - at < len ? b->n - at : len);
}

int cuda_upload(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    struct bytes b = {src, bytes};
    size_t whole = bytes / PIECE * PIECE;
    if (cuda_upload_rows(d, dst, bytes / PIECE, PIECE, fill_bytes, &b, e))
        return -1;
    b = (struct bytes){(const char *)src + whole, bytes - whole};
    return b.n ? cuda_upload_rows(d, (char *)dst + whole, 1, b.n, fill_bytes, &b, e) : 0;
}

int cuda_download(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    struct staging *s = &d->staging;
    cuda_flush(d, false);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;
        cudaError_t rc = cudaMemcpyAsync(s->host[0], (const char *)src + at, n,
                                         cudaMemcpyDeviceToHost, d->stream);
        if (rc != cudaSuccess)
            return cuda_failed(d, rc, "copying from the device", e);
        if (cuda_sync(d, "copying from the device", e))
            return -1;
        memcpy((char *)dst + at, s->host[0], n);
    }
    return 0;
}
