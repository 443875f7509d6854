/* oneshot.c - sums of small messages through peer memory: the host's side. Each rank has a region
 * that all other ranks of its machine have mapped (CUDA IPC). oneshot.cu describes its layout and
 * why no rank reads data too early. */
#include "model-server/backend/cuda/group.h"
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 2 << 20 }; /* a separate allocation: only the region is exported */

struct oneshot {
    struct group *g;
    char *mine;
    char *peers[ONESHOT_RANKS]; /* as mapped here; [rank] is its own */
    uint32_t *words;            /* pinned: enum oneshot_word */
    uint32_t blocks;
};

/* Sent to the other ranks: a rank's region. */
struct offer {
    uint32_t ok, reserved;
    cudaIpcMemHandle_t handle;
};

static int take_region(struct oneshot *s)
{
    size_t bytes = oneshot_region(s->blocks, (uint32_t)s->g->base.world);
    cudaStream_t stream = s->g->d->stream;
    bytes = (bytes + WHOLE - 1) / WHOLE * WHOLE;
    if (cudaMalloc((void **)&s->mine, bytes) != cudaSuccess ||
        cudaMallocHost((void **)&s->words, ONESHOT_WORDS * sizeof(*s->words)) != cudaSuccess ||
        cudaMemsetAsync(s->mine, 0, bytes, stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess)
        return -1;
    memset(s->words, 0, ONESHOT_WORDS * sizeof(*s->words));
    return 0;
}

/* True if rank r's GPU is visible here, and this one can write into its memory. */
static bool reaches(const struct group *g, int r)
{
    int device = 0, can = 0;
    if (group_same_gpu(g, r, g->base.rank))
        return true;
    return cudaDeviceGetByPCIBusId(&device, g->cards[r].bus_id) == cudaSuccess &&
           cudaDeviceCanAccessPeer(&can, g->d->index, device) == cudaSuccess && can;
}

static bool map_peers(struct oneshot *s, const struct offer *offers)
{
    for (int r = 0; r < s->g->base.world; r++)
        if (r == s->g->base.rank)
            s->peers[r] = s->mine;
        else if (cudaIpcOpenMemHandle((void **)&s->peers[r], offers[r].handle,
                                      cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
            return false;
    return true;
}

/* 1 if all ranks agree, else 0, or -1. Between two calls no rank returns to an earlier phase. */
static int all_agree(struct group *g, bool yes, struct err *e)
{
    float vote = yes;
    int rc = g->host->ops->all_gather(g->host, &vote, g->votes, 1, e) ? -1 : 1;
    for (int r = 0; rc == 1 && r < g->base.world; r++)
        rc = g->votes[r] > 0;
    return rc;
}

/* 1: open; 0: not every rank can; -1: the group is broken. */
static int connect_all(struct oneshot *s, struct err *e)
{
    struct group *g = s->g;
    struct offer mine = {0}, *all = calloc((size_t)g->base.world, sizeof(*all));
    if (!all)
        return err_nomem(e);
    mine.ok = !take_region(s) && cudaIpcGetMemHandle(&mine.handle, s->mine) == cudaSuccess;
    for (int r = 0; r < g->base.world; r++)
        mine.ok &= reaches(g, r);
    int rc = comm_gather_bytes(g->host, &mine, all, sizeof(mine), e) ? -1 : 1;
    for (int r = 0; rc == 1 && r < g->base.world; r++)
        rc = all[r].ok != 0;
    if (rc == 1)
        rc = all_agree(g, map_peers(s, all), e);
    free(all);
    cudaGetLastError(); /* clears the error of a failed request */
    return rc;
}

int oneshot_open(struct group *g, size_t max_bytes, struct err *e)
{
    if (!max_bytes || !(g->d->features & CUDA_PEERS) || g->base.nodes > 1 ||
        g->base.world > ONESHOT_RANKS)
        return 0;
    struct oneshot *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e);
    s->g = g;
    s->blocks = (uint32_t)(max_bytes / (ONESHOT_CHUNK * sizeof(float)));
    g->oneshot = s;
    int rc = connect_all(s, e);
    if (rc < 1)
        oneshot_close(s);
    return rc < 0 ? -1 : 0;
}

bool oneshot_takes(const struct oneshot *s, const float *x, size_t n)
{
    return n <= (size_t)s->blocks * ONESHOT_CHUNK && n % 4 == 0 && (uintptr_t)x % 16 == 0;
}

void oneshot_all_reduce(struct oneshot *s, float *x, size_t n)
{
    const struct group *g = s->g;
    struct oneshot_args a = {.x = x,
                             .words = s->words,
                             .n = n,
                             .patience_ns = (uint64_t)GROUP_TIMEOUT_S * 1000000000u,
                             .rank = (uint32_t)g->base.rank,
                             .world = (uint32_t)g->base.world,
                             .blocks = s->blocks};
    memcpy(a.peers, s->peers, sizeof(a.peers));
    RECORD(g->d, oneshot_launch, a);
}

int oneshot_missing(const struct oneshot *s)
{
    return (int)*(volatile const uint32_t *)&s->words[ONESHOT_MISSING] - 1;
}

void oneshot_stop(struct oneshot *s)
{
    if (s->words)
        *(volatile uint32_t *)&s->words[ONESHOT_STOP] = 1;
}

/* No rank uses the region of a rank that closes: a rank that still waits for it has lost the
 * group. */
void oneshot_close(struct oneshot *s)
{
    oneshot_stop(s);
    cudaStreamSynchronize(s->g->d->stream);
    for (int r = 0; r < s->g->base.world && r < ONESHOT_RANKS; r++)
        if (s->peers[r] && r != s->g->base.rank)
            cudaIpcCloseMemHandle(s->peers[r]);
    cudaFree(s->mine);
    cudaFreeHost(s->words);
    s->g->oneshot = NULL;
    free(s);
}
