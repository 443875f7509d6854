/* nccl.c - transfers between GPUs by NCCL, which is loaded with the first model of several ranks.
 *
 * NCCL only moves data; our own kernel computes the sums in rank order. So a sum has the same
 * bits on all ranks, for every batch size and transport. NCCL's own reductions do not guarantee
 * this.
 *
 * Calls are commands of the recorder: they run, are captured and are replayed with the step. The
 * first run of a step is never a capture, so NCCL has made its connections by then. The
 * communicator is non-blocking; one that failed is aborted. Messages between stages are no
 * commands: they are enqueued between parts of a step. */
#include "model-server/backend/cuda/group.h"
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NCCL_SHARES_GPUS = 23003 }; /* the first version with NCCL_MULTI_RANK_GPU_ENABLE */

/* The used functions of libnccl.so.2. */
struct api {
    ncclResult_t (*GetVersion)(int *);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *);
    ncclResult_t (*CommInitRankConfig)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*CommAbort)(ncclComm_t);
    ncclResult_t (*AllGather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                              cudaStream_t);
    ncclResult_t (*Send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*Recv)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
    const char *(*GetErrorString)(ncclResult_t);
};
struct nccl {
    struct api api;
    struct group *g;
    ncclComm_t comm; /* NULL: aborted */
};

static bool load(struct api *api)
{
    const char *path = getenv("NCCL_LIBRARY"); /* NOLINT(concurrency-mt-unsafe): as below */
    void *so = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (!so)
        return false;
    const struct {
        const char *name;
        void *to;
    } all[] = {{"ncclGetVersion", &api->GetVersion},
               {"ncclGetUniqueId", &api->GetUniqueId},
               {"ncclCommInitRankConfig", &api->CommInitRankConfig},
               {"ncclCommGetAsyncError", &api->CommGetAsyncError},
               {"ncclCommAbort", &api->CommAbort},
               {"ncclAllGather", &api->AllGather},
               {"ncclSend", &api->Send},
               {"ncclRecv", &api->Recv},
               {"ncclGroupStart", &api->GroupStart},
               {"ncclGroupEnd", &api->GroupEnd},
               {"ncclGetErrorString", &api->GetErrorString}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!(*(void **)all[i].to = dlsym(so, all[i].name)))
            return false;
    return true;
}

uint32_t nccl_version(void)
{
    struct api api;
    int v = 0;
    return load(&api) && api.GetVersion(&v) == ncclSuccess && v > 0 ? (uint32_t)v : 0;
}

/* ---------------------------------------------------------------- states and errors */

int nccl_state(struct nccl *n, const char **why)
{
    ncclResult_t state = ncclSuccess;
    *why = "aborted";
    if (!n->comm)
        return -1;
    ncclResult_t rc = n->api.CommGetAsyncError(n->comm, &state);
    if (rc == ncclSuccess)
        rc = state;
    if (rc == ncclSuccess || rc == ncclInProgress)
        return rc == ncclInProgress;
    *why = n->api.GetErrorString(rc);
    return -1;
}

/* Waits until NCCL has accepted the last call. */
static int settle(struct nccl *n, ncclResult_t rc, const char *what, struct err *e)
{
    struct vigil v = {0};
    const char *why = "";
    int state;
    if (rc != ncclSuccess && rc != ncclInProgress)
        return group_lose(n->g, what, n->api.GetErrorString(rc), e);
    while ((state = nccl_state(n, &why)) == 1)
        if (group_vigil(n->g, &v, what, e))
            return -1;
    return state ? group_lose(n->g, what, why, e) : 0;
}

/* NCCL returns when no graph has calls of this communicator (commDestroySync() in its init.cc). */
void nccl_abort(struct nccl *n)
{
    if (n->comm) {
        recorder_drop_graphs(n->g->d);
        n->api.CommAbort(n->comm);
    }
    n->comm = NULL;
}

void nccl_close(struct nccl *n)
{
    nccl_abort(n); /* without waiting for the other ranks */
    n->g->nccl = NULL;
    free(n);
}

/* ---------------------------------------------------------------- moving */

struct move_args {
    struct nccl *n;
    const float *in;
    float *out;
    uint64_t count;
};

static cudaError_t moved(struct nccl *n, ncclResult_t rc, const char *what)
{
    struct err e = ERR_INIT;
    if (!settle(n, rc, what, &e))
        return cudaSuccess;
    if (n->g->d->fault.kind == ERR_NONE)
        n->g->d->fault = e;
    return cudaErrorUnknown;
}

static cudaError_t nccl_gather_launch(const struct launch *l, const void *args)
{
    const struct move_args *a = args;
    struct nccl *n = a->n;
    ncclResult_t rc = ncclSuccess;
    if (n->comm)
        rc = n->api.AllGather(a->in, a->out, a->count, ncclFloat32, n->comm, l->stream);
    return moved(n, rc, "gathering");
}

static cudaError_t nccl_scatter_launch(const struct launch *l, const void *args)
{
    const struct move_args *a = args;
    struct nccl *n = a->n;
    ncclResult_t rc = ncclSuccess, worst = ncclSuccess;
    if (!n->comm)
        return moved(n, rc, "scattering");
    n->api.GroupStart();
    for (int r = 0; r < n->g->base.world; r++) {
        const size_t at = (size_t)r * a->count;
        if (r == n->g->base.rank)
            continue;
        rc = n->api.Send(a->in + at, a->count, ncclFloat32, r, n->comm, l->stream);
        worst = rc == ncclSuccess || rc == ncclInProgress ? worst : rc;
        rc = n->api.Recv(a->out + at, a->count, ncclFloat32, r, n->comm, l->stream);
        worst = rc == ncclSuccess || rc == ncclInProgress ? worst : rc;
    }
    rc = n->api.GroupEnd();
    return moved(n, worst == ncclSuccess ? rc : worst, "scattering");
}

void nccl_gather(struct nccl *n, const float *in, float *out, size_t count)
{
    struct move_args a = {n, in, out, count};
    RECORD(n->g->d, nccl_gather_launch, a);
}

void nccl_scatter(struct nccl *n, const float *x, float *out, size_t count)
{
    struct move_args a = {n, x, out, count};
    RECORD(n->g->d, nccl_scatter_launch, a);
}

int nccl_send(struct nccl *n, int to, const float *x, size_t count, struct err *e)
{
    return settle(n, n->api.Send(x, count, ncclFloat32, to, n->comm, n->g->d->stream), "sending",
                  e);
}

int nccl_recv(struct nccl *n, int from, float *x, size_t count, struct err *e)
{
    return settle(n, n->api.Recv(x, count, ncclFloat32, from, n->comm, n->g->d->stream),
                  "receiving", e);
}

/* ---------------------------------------------------------------- opening */

static void set_default(const char *name, const char *value)
{
    /* No other thread reads the environment while a model is loaded. */
    setenv(name, value, 0); /* NOLINT(concurrency-mt-unsafe) */
}

static bool gpus_are_shared(const struct group *g)
{
    for (int a = 0; a < g->base.world; a++)
        for (int b = 0; b < a; b++)
            if (group_same_gpu(g, a, b))
                return true;
    return false;
}

/* Does not override the operator's settings. They are those of the process, which may have several
 * communicators. */
static void prepare_environment(const struct group *g)
{
    const struct comm *all = g->host->whole ? g->host->whole : g->host;
    char rank[16];
    snprintf(rank, sizeof(rank), "rank-%d", all->rank);
    set_default("NCCL_RAS_ENABLE", "0");
    /* NCCL may map buffers for a captured graph that are later freed and reallocated at the same
     * address. */
    set_default("NCCL_GRAPH_REGISTER", "0");
    if (all->nodes == 1) /* it need not listen on a network */
        set_default("NCCL_SOCKET_IFNAME", "lo");
    if (!gpus_are_shared(g))
        return;
    if (g->cards[0].nccl >= NCCL_SHARES_GPUS) {
        set_default("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    } else { /* a separate host for each rank: NCCL refuses two ranks of one host on one GPU */
        set_default("NCCL_HOSTID", rank);
        set_default("NCCL_NET", "Socket");
        set_default("NCCL_MNNVL_ENABLE", "0");
    }
}

/* 1: use NCCL; 0: a rank does not have it. */
static int suits_all(const struct group *g, struct err *e)
{
    const uint32_t v = g->cards[0].nccl;
    for (int r = 0; r < g->base.world; r++)
        if (!g->cards[r].nccl)
            return 0;
    for (int r = 1; r < g->base.world; r++) {
        uint32_t w = g->cards[r].nccl;
        if (v != w)
            return err_set(e, ERR_SYSTEM,
                           "NCCL is %u.%u.%u on rank 0 and %u.%u.%u on rank %d: install the same, "
                           "or name one by NCCL_LIBRARY",
                           v / 10000, v / 100 % 100, v % 100, w / 10000, w / 100 % 100, w % 100, r);
    }
    return 1;
}

/* Rank 0's identifier to all. */
static int share_id(struct nccl *n, ncclUniqueId *id, struct err *e)
{
    struct group *g = n->g;
    ncclUniqueId mine, *all = calloc((size_t)g->base.world, sizeof(*all));
    if (!all)
        return err_nomem(e);
    memset(&mine, 0, sizeof(mine));
    ncclResult_t made = g->base.rank ? ncclSuccess : n->api.GetUniqueId(&mine);
    int rc = comm_gather_bytes(g->host, &mine, all, sizeof(mine), e);
    *id = all[0];
    free(all);
    return rc || made == ncclSuccess ? rc : group_lose(g, "NCCL", n->api.GetErrorString(made), e);
}

static int join(struct nccl *n, struct err *e)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (share_id(n, &id, e))
        return -1;
    ncclResult_t rc =
        n->api.CommInitRankConfig(&n->comm, n->g->base.world, id, n->g->base.rank, &config);
    return settle(n, rc, "joining the other GPUs", e);
}

int nccl_open(struct group *g, struct err *e)
{
    int suits = suits_all(g, e);
    if (suits <= 0)
        return suits;
    struct nccl *n = calloc(1, sizeof(*n));
    if (!n)
        return err_nomem(e);
    n->g = g;
    g->nccl = n;
    prepare_environment(g);
    return load(&n->api) ? join(n, e) : err_set(e, ERR_SYSTEM, "NCCL is gone since a moment ago");
}
