/* profile.c - the time of each recorded operation, by an event before and after its launch.
 *
 * The device waits until the host has enqueued the step. Otherwise a small kernel's time would be
 * that of its launch by the host. What remains beside a kernel is the time between two events; an
 * empty kernel shows it. */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>

/* The host needs less than this for a launch and an event. */
enum { NS_EACH = 12000 };

void cuda_profile(struct device *d, profile_fn *fn, void *arg)
{
    d->profile.fn = fn;
    d->profile.arg = arg;
}

/* Bytes of the matrix of a product; all product's arguments begin with its linear_args. */
static uint64_t matrix_bytes(launch_fn *fn, const void *args)
{
    if (fn != linear_any_launch && fn != linear_stream_launch && fn != linear_tile_launch &&
        fn != linear_wgmma_launch)
        return 0;
    const struct linear_args *a = args;
    return a->table
               ? 0 /* it depends on the chosen experts */
               : a->w.rows * row_bytes(a->w.cols, a->w.dtype, a->w.quant) + scales_bytes(&a->w);
}

static void events_free(cudaEvent_t *v, uint32_t n)
{
    for (uint32_t i = 0; v && i < n; i++)
        if (v[i])
            cudaEventDestroy(v[i]);
    free(v);
}

static cudaEvent_t *events_new(struct device *d, uint32_t n)
{
    cudaEvent_t *v = calloc(n, sizeof(cudaEvent_t));
    cudaError_t rc = cudaSuccess;
    if (!v)
        err_nomem(&d->fault);
    for (uint32_t i = 0; v && i < n && rc == cudaSuccess; i++)
        rc = cudaEventCreateWithFlags(&v[i], 0);
    if (rc == cudaSuccess)
        return v;
    cuda_fault(d, rc, "making an event");
    events_free(v, n);
    return NULL;
}

/* Enqueues a pause, an empty kernel and the operations, with events [n + 2] between them. */
static cudaError_t enqueue(struct device *d, const cudaEvent_t *v)
{
    const struct recorder *r = &d->rec;
    const struct launch l = {d->stream, false};
    const struct pause_args wait = {(uint64_t)NS_EACH * r->n}, none = {0};
    cudaError_t rc = pause_launch(&l, &wait);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(v[0], d->stream);
    if (rc == cudaSuccess)
        rc = pause_launch(&l, &none);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(v[1], d->stream);
    for (uint32_t i = 0; i < r->n && rc == cudaSuccess; i++) {
        rc = r->commands[i].fn(&l, r->bytes + r->commands[i].at);
        if (rc == cudaSuccess)
            rc = cudaEventRecord(v[i + 2], d->stream);
    }
    return rc;
}

static void report(struct device *d, const cudaEvent_t *v)
{
    const struct recorder *r = &d->rec;
    for (uint32_t i = 0; i < r->n + 1; i++) {
        const struct command *c = i ? &r->commands[i - 1] : NULL;
        float ms = 0;
        cudaError_t rc = cudaEventElapsedTime(&ms, v[i], v[i + 1]);
        if (rc != cudaSuccess) {
            cuda_fault(d, rc, "timing an operation");
            return;
        }
        d->profile.fn(d->profile.arg, c ? c->name : "(an empty kernel)",
                      c ? matrix_bytes(c->fn, r->bytes + c->at) : 0, (double)ms * 1e3);
    }
}

void profile_run(struct device *d)
{
    const uint32_t n = d->rec.n + 2;
    cudaEvent_t *v = events_new(d, n);
    struct err late = ERR_INIT;
    if (!v)
        return;
    cudaError_t rc = enqueue(d, v);
    if (rc != cudaSuccess)
        cuda_fault(d, rc, "launching a kernel");
    if (cuda_sync(d, "running a step", &late) && d->fault.kind == ERR_NONE)
        d->fault = late;
    if (d->fault.kind == ERR_NONE)
        report(d, v);
    events_free(v, n);
}
