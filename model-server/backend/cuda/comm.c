/* comm.c - collectives on device memory: NCCL's, or by way of the host's communicator: down,
 * through shared memory, up again. The latter works wherever the ranks share a host, whatever GPUs
 * they have, and adds up in rank order like every communicator here; its cost is two copies over
 * the bus and the wait for both. */
#include "model-server/comm/comm.h"
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>

struct cuda_comm {
    struct comm base;
    struct device *d;
    struct comm *host;
    float *buf; /* pinned */
    size_t cap; /* floats */
};

static int reserve(struct cuda_comm *c, size_t n, struct err *e)
{
    if (n <= c->cap)
        return 0;
    cudaFreeHost(c->buf); /* waits for what uses it */
    c->buf = NULL, c->cap = 0;
    cudaError_t rc = cudaMallocHost((void **)&c->buf, n * sizeof(float));
    if (rc != cudaSuccess)
        return cuda_failed(c->d, rc, "page-locked memory for collectives", e);
    c->cap = n;
    return 0;
}

/* The ops before it have run and x is in buf[0 .. n), which then has room for `room` floats. */
static int fetch(struct cuda_comm *c, const float *x, size_t n, size_t room, struct err *e)
{
    cuda_flush(c->d, false);
    if (c->d->fault.kind != ERR_NONE) {
        *e = c->d->fault;
        return -1;
    }
    if (reserve(c, room, e))
        return -1;
    cudaError_t rc =
        cudaMemcpyAsync(c->buf, x, n * sizeof(float), cudaMemcpyDeviceToHost, c->d->stream);
    if (rc != cudaSuccess)
        return cuda_failed(c->d, rc, "copying from the device", e);
    return cuda_sync(c->d, "a collective", e);
}

/* In order with the ops that follow, and with the next fetch() into the same buffer. */
static int put(struct cuda_comm *c, float *x, const float *src, size_t n, struct err *e)
{
    cudaError_t rc =
        cudaMemcpyAsync(x, src, n * sizeof(float), cudaMemcpyHostToDevice, c->d->stream);
    return rc == cudaSuccess ? 0 : cuda_failed(c->d, rc, "copying to the device", e);
}

static int all_reduce(struct comm *base, float *x, size_t n, struct err *e)
{
    struct cuda_comm *c = (struct cuda_comm *)base;
    if (!n)
        return 0;
    if (fetch(c, x, n, n, e) || c->host->ops->all_reduce(c->host, c->buf, n, e))
        return -1;
    return put(c, x, c->buf, n, e);
}

static int all_gather(struct comm *base, const float *in, float *out, size_t n, struct err *e)
{
    struct cuda_comm *c = (struct cuda_comm *)base;
    const size_t all = (size_t)base->world * n;
    if (!n)
        return 0;
    if (fetch(c, in, n, n + all, e) || c->host->ops->all_gather(c->host, c->buf, c->buf + n, n, e))
        return -1;
    return put(c, out, c->buf + n, all, e);
}

static int barrier(struct comm *base, struct err *e)
{
    struct cuda_comm *c = (struct cuda_comm *)base;
    return c->host->ops->barrier(c->host, e);
}

static void comm_drop(struct comm *base)
{
    struct cuda_comm *c = (struct cuda_comm *)base;
    cudaFreeHost(c->buf);
    free(c);
}

struct comm *cuda_comm_open(struct device *d, struct comm *host, struct err *e)
{
    static const struct comm_ops ops = {all_reduce, all_gather, barrier, comm_drop};
    struct comm *nccl;
    if (nccl_open(d, host, &nccl, e))
        return NULL;
    if (nccl)
        return nccl;
    struct cuda_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return err_nomem(e), NULL;
    c->base = (struct comm){&ops, host->rank, host->world};
    c->d = d, c->host = host;
    return &c->base;
}
