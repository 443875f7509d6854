/* group_host.c - collectives on device memory through the hosts' communicator: copy down,
 * exchange, copy up. It works on any GPUs whose processes can communicate. It costs two copies
 * over the bus and the wait for both. */
#include "model-server/backend/cuda/group.h"

static int reserve(struct group *g, size_t n, struct err *e)
{
    if (n <= g->cap)
        return 0;
    cudaFreeHost(g->buf); /* waits for what uses it */
    g->buf = NULL, g->cap = 0;
    cudaError_t rc = cudaMallocHost((void **)&g->buf, n * sizeof(float));
    if (rc != cudaSuccess)
        return cuda_failed(g->d, rc, "page-locked memory for collectives", e);
    g->cap = n;
    return 0;
}

/* Waits for earlier ops and copies x to buf[0 .. n), which then has a capacity of `room`
 * floats. */
static int fetch(struct group *g, const float *x, size_t n, size_t room, struct err *e)
{
    cuda_flush(g->d, false);
    if (g->d->fault.kind != ERR_NONE) {
        *e = g->d->fault;
        return -1;
    }
    if (reserve(g, room, e))
        return -1;
    cudaError_t rc =
        cudaMemcpyAsync(g->buf, x, n * sizeof(float), cudaMemcpyDeviceToHost, g->d->stream);
    if (rc != cudaSuccess)
        return cuda_failed(g->d, rc, "copying from the device", e);
    return cuda_sync(g->d, "a collective", e);
}

/* Ordered with later ops, and with the next fetch() into the same buffer. */
static int put(struct group *g, float *x, const float *src, size_t n, struct err *e)
{
    cudaError_t rc =
        cudaMemcpyAsync(x, src, n * sizeof(float), cudaMemcpyHostToDevice, g->d->stream);
    return rc == cudaSuccess ? 0 : cuda_failed(g->d, rc, "copying to the device", e);
}

int host_all_reduce(struct group *g, float *x, size_t n, struct err *e)
{
    if (fetch(g, x, n, n, e))
        return -1;
    if (g->host->ops->all_reduce(g->host, g->buf, n, e))
        return group_lose(g, "a collective", e->msg, e);
    return put(g, x, g->buf, n, e);
}

int host_all_gather(struct group *g, const float *in, float *out, size_t n, struct err *e)
{
    const size_t all = (size_t)g->base.world * n;
    if (fetch(g, in, n, n + all, e))
        return -1;
    if (g->host->ops->all_gather(g->host, g->buf, g->buf + n, n, e))
        return group_lose(g, "a collective", e->msg, e);
    return put(g, out, g->buf + n, all, e);
}
