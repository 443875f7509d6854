/* nccl.c - collectives between GPUs by NCCL, loaded when the first model of several ranks is.
 *
 * NCCL only gathers; the sums are taken by our own kernel in rank order. So a sum has the same bits
 * on all ranks, for every batch size and by every transport, which NCCL's own reductions do not
 * promise. For two ranks that moves the bytes of a ring; for more, more: see
 * docs/decisions/cuda.md.
 *
 * The communicator is non-blocking: whoever waits for the device (cuda_sync) asks NCCL whether it
 * still stands, and gives up after TIMEOUT_S. A communicator that failed is aborted; the process is
 * of no further use, and the launcher starts the group again. One communicator, one stream, one
 * thread. */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/comm/comm.h"
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_S = 120, CHUNK = 4 << 20 /* floats gathered at a time */ };

/* What is used of libnccl.so.2. */
struct nccl {
    struct comm base;
    struct device *d;
    struct comm *host;
    ncclComm_t comm;
    struct err lost;
    ncclResult_t (*GetUniqueId)(ncclUniqueId *);
    ncclResult_t (*CommInitRankConfig)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*CommAbort)(ncclComm_t);
    ncclResult_t (*AllGather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                              cudaStream_t);
    const char *(*GetErrorString)(ncclResult_t);
};

/* ---------------------------------------------------------------- loading */

/* On one host nothing has to listen on a network; what the operator set stays. */
static void keep_local(void)
{
    // NOLINTBEGIN(concurrency-mt-unsafe): while a model is loaded, nobody reads the environment
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_RAS_ENABLE", "0", 0);
    // NOLINTEND(concurrency-mt-unsafe)
}

static bool load(struct nccl *n)
{
    const char *path = getenv("NCCL_LIBRARY"); /* NOLINT(concurrency-mt-unsafe): as above */
    keep_local();
    void *so = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (!so)
        return false;
    const struct {
        const char *name;
        void *to;
    } all[] = {{"ncclGetUniqueId", &n->GetUniqueId},
               {"ncclCommInitRankConfig", &n->CommInitRankConfig},
               {"ncclCommGetAsyncError", &n->CommGetAsyncError},
               {"ncclCommAbort", &n->CommAbort},
               {"ncclAllGather", &n->AllGather},
               {"ncclGetErrorString", &n->GetErrorString}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!(*(void **)all[i].to = dlsym(so, all[i].name)))
            return false;
    return true;
}

/* Every rank has the library, and each a GPU of its own: NCCL refuses two ranks on one. Collective
 * on `host`; 1, 0 or -1 for an error. */
static int suits_all(struct nccl *n, bool loaded, struct err *e)
{
    enum { PARTS = 4 };
    unsigned domain = 0, bus = 0, slot = 0;
    char id[32] = "";
    float mine[PARTS], *all = calloc((size_t)n->base.world * PARTS, sizeof(*all));
    int rc = 1;
    if (!all)
        return err_nomem(e);
    if (cudaDeviceGetPCIBusId(id, sizeof(id), n->d->index) != cudaSuccess ||
        sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        loaded = false;
    /* small integers: exact as floats */
    mine[0] = loaded, mine[1] = (float)domain, mine[2] = (float)bus, mine[3] = (float)slot;
    if (n->host->ops->all_gather(n->host, mine, all, PARTS, e))
        rc = -1;
    for (size_t i = 0; rc == 1 && i < (size_t)n->base.world; i++) {
        const float *a = all + i * PARTS;
        rc = a[0] > 0;
        for (const float *b = all; rc == 1 && b < a; b += PARTS)
            rc = a[1] != b[1] || a[2] != b[2] || a[3] != b[3];
    }
    free(all);
    return rc;
}

/* ---------------------------------------------------------------- states and errors */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int lose(struct nccl *n, const char *what, const char *why, struct err *e)
{
    if (n->comm)
        n->CommAbort(n->comm);
    n->comm = NULL;
    err_set(&n->lost, ERR_SYSTEM, "GPU %d, rank %d of %d: %s: %s", n->d->index, n->base.rank,
            n->base.world, what, why);
    *e = n->lost;
    return -1;
}

/* Still standing: 0; 1 if NCCL is at work on the last call; -1 if the group is lost. */
static int state_of(struct nccl *n, struct err *e)
{
    ncclResult_t state = ncclSuccess;
    if (!n->comm) {
        *e = n->lost;
        return -1;
    }
    ncclResult_t rc = n->CommGetAsyncError(n->comm, &state);
    if (rc == ncclSuccess)
        rc = state;
    if (rc == ncclSuccess || rc == ncclInProgress)
        return rc == ncclInProgress;
    return lose(n, "NCCL", n->GetErrorString(rc), e);
}

/* Until NCCL has taken the last call. */
static int settle(struct nccl *n, ncclResult_t rc, const char *what, struct err *e)
{
    const double end = now() + TIMEOUT_S;
    int state = 1;
    if (rc != ncclSuccess && rc != ncclInProgress)
        return lose(n, what, n->GetErrorString(rc), e);
    while ((state = state_of(n, e)) == 1) {
        if (now() > end)
            return lose(n, what, "the other ranks did not come in time", e);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return state;
}

/* In the place of a synchronisation that would wait for a dead rank for ever. */
static int watch(struct device *d, struct err *e)
{
    struct nccl *n = d->watched;
    const double start = now();
    double t;
    while ((t = now()) < start + TIMEOUT_S) {
        cudaError_t rc = cudaStreamQuery(d->stream);
        if (rc == cudaSuccess)
            return 0;
        if (rc != cudaErrorNotReady)
            return cuda_failed(d, rc, "running a step", e);
        if (state_of(n, e) < 0)
            return -1;
        if (t > start + 0.01) /* a long step: let others have the core */
            nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    return lose(n, "a collective", "the other ranks did not come in time", e);
}

/* ---------------------------------------------------------------- collectives */

/* out: [world][n]; what was recorded before runs before. */
static int gather(struct nccl *n, const float *in, float *out, size_t count, struct err *e)
{
    cuda_flush(n->d, false);
    if (n->d->fault.kind != ERR_NONE) {
        *e = n->d->fault;
        return -1;
    }
    if (!n->comm) {
        *e = n->lost;
        return -1;
    }
    return settle(n, n->AllGather(in, out, count, ncclFloat32, n->comm, n->d->stream), "gathering",
                  e);
}

static int all_gather(struct comm *c, const float *in, float *out, size_t count, struct err *e)
{
    return count ? gather((struct nccl *)c, in, out, count, e) : 0;
}

static int all_reduce(struct comm *c, float *x, size_t count, struct err *e)
{
    struct nccl *n = (struct nccl *)c;
    for (size_t at = 0, len; at < count; at += len) {
        len = count - at < CHUNK ? count - at : CHUNK;
        float *all = cuda_work(n->d, WORK_GATHER, (size_t)c->world * len * sizeof(float));
        if (!all) {
            *e = n->d->fault;
            return -1;
        }
        if (gather(n, x + at, all, len, e))
            return -1;
        struct rank_sum_args a = {x + at, all, len, (uint32_t)c->world, 0};
        RECORD(n->d, rank_sum_launch, a);
    }
    return 0;
}

static int barrier(struct comm *c, struct err *e)
{
    struct nccl *n = (struct nccl *)c;
    return n->host->ops->barrier(n->host, e);
}

static void leave(struct comm *c)
{
    struct nccl *n = (struct nccl *)c;
    n->d->watch = NULL;
    if (n->comm)
        n->CommAbort(n->comm); /* without waiting for the others */
    free(n);
}

/* ---------------------------------------------------------------- opening */

/* Rank 0's identifier to all, a byte a float. */
static int share_id(struct nccl *n, ncclUniqueId *id, struct err *e)
{
    enum { BYTES = sizeof(*id) };
    float mine[BYTES], *all = calloc((size_t)n->base.world * BYTES, sizeof(*all));
    if (!all)
        return err_nomem(e);
    memset(id, 0, sizeof(*id));
    ncclResult_t made = n->base.rank ? ncclSuccess : n->GetUniqueId(id);
    for (int i = 0; i < BYTES; i++)
        mine[i] = (unsigned char)id->internal[i];
    int rc = n->host->ops->all_gather(n->host, mine, all, BYTES, e);
    for (int i = 0; i < BYTES; i++)
        id->internal[i] = (char)(unsigned char)all[i];
    free(all);
    return rc || made == ncclSuccess ? rc : lose(n, "NCCL", n->GetErrorString(made), e);
}

static int join(struct nccl *n, struct err *e)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (share_id(n, &id, e))
        return -1;
    ncclResult_t rc = n->CommInitRankConfig(&n->comm, n->base.world, id, n->base.rank, &config);
    return settle(n, rc, "joining the other GPUs", e);
}

int nccl_open(struct device *d, struct comm *host, struct comm **out, struct err *e)
{
    static const struct comm_ops ops = {all_reduce, all_gather, barrier, leave};
    struct nccl *n = calloc(1, sizeof(*n));
    *out = NULL;
    if (!n)
        return err_nomem(e);
    n->base = (struct comm){&ops, host->rank, host->world};
    n->d = d, n->host = host;
    int rc = suits_all(n, load(n), e);
    if (rc == 1 && join(n, e))
        rc = -1;
    if (rc < 1) {
        free(n);
        return rc;
    }
    d->watch = watch, d->watched = n;
    *out = &n->base;
    return 0;
}
