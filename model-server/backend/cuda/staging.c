/* staging.c - copies between host and device through pinned buffers: one is filled while another
 * is sent. */
#include "model-server/backend/cuda/cuda.h"
#include <string.h>

enum { STAGING_BYTES = 4 << 20 };

int staging_open(struct device *d, struct err *e)
{
    for (int i = 0; i < STAGING_BUFFERS; i++) {
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
    for (int i = 0; i < STAGING_BUFFERS; i++) {
        if (d->staging.done[i])
            cudaEventDestroy(d->staging.done[i]);
        cudaFreeHost(d->staging.host[i]);
    }
}

static int send_rows(struct device *d, void *dst, size_t rows, size_t row_bytes,
                     void (*fill)(void *arg, char *dst, size_t first, size_t n), void *arg,
                     struct err *e)
{
    struct staging *s = &d->staging;
    size_t most = STAGING_BYTES / row_bytes;
    if (!most)
        return err_set(e, ERR_VALIDATION, "rows of %zu bytes are too long to be copied", row_bytes);
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
        s->next = (i + 1) % STAGING_BUFFERS;
    }
    return 0;
}

void cuda_flush_part(struct device *d) { cuda_flush(d, d->batch && d->decode); }

int cuda_upload_rows(struct device *d, void *dst, size_t rows, size_t row_bytes,
                     void (*fill)(void *arg, char *dst, size_t first, size_t n), void *arg,
                     struct err *e)
{
    cuda_flush_part(d);
    return send_rows(d, dst, rows, row_bytes, fill, arg, e);
}

struct staged_bytes {
    const char *src;
    size_t n;
};

/* Rows of 4 KiB; or one, of any length. */
enum { PIECE = 4096 };
static void fill_bytes(void *arg, char *dst, size_t first, size_t n)
{
    const struct staged_bytes *b = arg;
    size_t at = first * PIECE, len = n * PIECE;
    if (b->n <= STAGING_BYTES)
        at = 0, len = b->n;
    memcpy(dst, b->src + at, len);
}

int cuda_upload(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    struct staged_bytes b = {src, bytes};
    size_t whole = bytes <= STAGING_BYTES ? 0 : bytes / PIECE * PIECE;
    if (whole && cuda_upload_rows(d, dst, whole / PIECE, PIECE, fill_bytes, &b, e))
        return -1;
    b = (struct staged_bytes){(const char *)src + whole, bytes - whole};
    return b.n ? cuda_upload_rows(d, (char *)dst + whole, 1, b.n, fill_bytes, &b, e) : 0;
}

int cuda_upload_first(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    struct staged_bytes b = {src, bytes};
    return send_rows(d, dst, 1, bytes, fill_bytes, &b, e);
}

int cuda_download(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    struct staging *s = &d->staging;
    cuda_flush_part(d);
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

/* ---------------------------------------------------------------- outbox */

void outbox_free(struct outbox *o)
{
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(o->host[i]); /* waits for what uses it */
        if (o->sent[i])
            cudaEventDestroy(o->sent[i]);
    }
    cudaFree(o->dev);
    *o = (struct outbox){0};
}

int outbox_next(struct device *d, struct outbox *o, size_t bytes, const char *what,
                const char *remedy, struct err *e)
{
    cudaError_t rc = cudaSuccess;
    if (bytes > o->cap) {
        bytes += bytes / 2;
        outbox_free(o);
        if (!(o->dev = cuda_take(d, bytes, what, remedy, e)))
            return -1;
        for (int i = 0; i < 2 && rc == cudaSuccess; i++) {
            rc = cudaMallocHost((void **)&o->host[i], bytes);
            if (rc == cudaSuccess)
                rc = cudaEventCreateWithFlags(&o->sent[i], cudaEventDisableTiming);
        }
        if (rc != cudaSuccess) {
            outbox_free(o);
            return cuda_failed(d, rc, what, e);
        }
        o->cap = bytes;
    }
    o->now = !o->now;
    rc = cudaEventSynchronize(o->sent[o->now]);
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, what, e);
}

void outbox_send(struct device *d, struct outbox *o, size_t bytes)
{
    cudaError_t rc =
        cudaMemcpyAsync(o->dev, o->host[o->now], bytes, cudaMemcpyHostToDevice, d->stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(o->sent[o->now], d->stream);
    if (rc != cudaSuccess)
        cuda_fault(d, rc, "sending a step's record");
}
