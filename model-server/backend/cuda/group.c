/* group.c - forms a group of devices, chooses the transport of a message, and monitors the other
 * ranks.
 *
 * Waits for the device (cuda_sync) are done here: they check now and then whether the other ranks
 * live and NCCL works, and give up after GROUP_TIMEOUT_S. A group that lost a rank cannot be used
 * any more. The processes end, and the launcher names the first one. */
#include "model-server/backend/cuda/group.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Maximum message size of each transport. Every rank writes a oneshot message to all other ranks,
 * so the limit shrinks with their number. The figures are those published for H100s and remain to
 * be measured. Gathering everything takes one call less than scattering and gathering, and for
 * two ranks moves no more bytes. */
enum {
    ONESHOT_FEW_BYTES = 256 << 10, /* up to 4 ranks */
    ONESHOT_BYTES = 64 << 10,      /* up to 8; none beyond */
    GATHER_BYTES = 64 << 10,       /* for three ranks and more; with two always */
    CHUNK = 4 << 20,               /* floats that NCCL is given at a time */
};

static size_t oneshot_bytes(int world)
{
    return world <= 4 ? ONESHOT_FEW_BYTES : world <= 8 ? ONESHOT_BYTES : 0;
}

bool group_same_gpu(const struct group *g, int a, int b)
{
    const int per_node = g->base.world / g->base.nodes;
    return a / per_node == b / per_node && !strcmp(g->cards[a].bus_id, g->cards[b].bus_id);
}

/* ---------------------------------------------------------------- loss */

int group_lose(struct group *g, const char *what, const char *why, struct err *e)
{
    struct err dead = ERR_INIT;
    if (g->lost.kind == ERR_NONE) {
        const char *cause = g->host->ops->check(g->host, &dead) ? dead.msg : why;
        err_set(&g->lost, ERR_SYSTEM, "GPU %d, rank %d of %d: %s: %s", g->d->index, g->base.rank,
                g->base.world, what, cause);
        const struct err lost = g->lost;
        for (struct group *k = g->d->group; k; k = k->next) { /* what one waits for, all wait for */
            k->lost = lost;
            if (k->oneshot)
                oneshot_stop(k->oneshot);
        }
        for (struct group *k = g->d->group; k; k = k->next)
            if (k->nccl)
                nccl_abort(k->nccl);
    }
    *e = g->lost;
    return -1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int group_vigil(struct group *g, struct vigil *v, const char *what, struct err *e)
{
    static const double look_s = 0.05, busy_s = 0.01;
    struct err dead = ERR_INIT;
    double t = now();
    if (!v->start)
        v->start = v->looked = t;
    if (t - v->start > GROUP_TIMEOUT_S)
        return group_lose(g, what, "the other ranks did not come in time", e);
    if (t - v->looked > look_s) {
        v->looked = t;
        if (g->host->ops->check(g->host, &dead))
            return group_lose(g, what, dead.msg, e);
    }
    if (t - v->start > busy_s) /* a long step: yield the core */
        nanosleep(&(struct timespec){0, 20000}, NULL);
    return 0;
}

static int check_nccl(struct group *g, struct err *e)
{
    const char *why = "";
    for (; g; g = g->next)
        if (g->nccl && nccl_state(g->nccl, &why) < 0)
            return group_lose(g, "NCCL", why, e);
    return 0;
}

static int check_arrived(struct group *g, struct err *e)
{
    for (; g; g = g->next) {
        const int missing = g->oneshot ? oneshot_missing(g->oneshot) : -1;
        char who[64];
        if (missing < 0)
            continue;
        snprintf(who, sizeof(who), "rank %d did not come within %d s", missing, GROUP_TIMEOUT_S);
        return group_lose(g, "a collective", who, e);
    }
    return 0;
}

int group_wait(struct device *d, cudaEvent_t until, struct err *e)
{
    struct vigil v = {0};
    struct group *g = d->group;
    cudaError_t rc;
    if (g->lost.kind != ERR_NONE) { /* then all are */
        *e = g->lost;
        return -1;
    }
    while ((rc = until ? cudaEventQuery(until) : cudaStreamQuery(d->stream)) == cudaErrorNotReady)
        if (check_nccl(g, e) || group_vigil(g, &v, g->messages ? "a message" : "a collective", e))
            return -1;
    return rc == cudaSuccess ? check_arrived(g, e) : cuda_failed(d, rc, "running a step", e);
}

/* ---------------------------------------------------------------- one decision of all */

struct group *group_of_captures(const struct device *d)
{
    struct group *g = d->group;
    while (g && (g->messages || !g->nccl))
        g = g->next;
    return g;
}

int group_agree(struct group *g, int mine)
{
    struct device *d = g->d;
    struct err e = ERR_INIT;
    float vote = (float)mine; /* captures are counted far below 2^24: exact */
    if (g->lost.kind != ERR_NONE || g->host->ops->all_gather(g->host, &vote, g->votes, 1, &e)) {
        group_lose(g, "agreeing on a step", e.msg, &e);
        if (d->fault.kind == ERR_NONE)
            d->fault = e;
        return STEP_FAILED;
    }
    float least = vote;
    bool equal = true;
    int failed = 0;
    for (int r = 0; r < g->base.world; r++) {
        equal &= g->votes[r] == vote;
        if (g->votes[r] < least)
            least = g->votes[r];
        if (g->votes[r] == STEP_FAILED)
            failed = r;
    }
    if (least == STEP_FAILED) {
        char why[64];
        snprintf(why, sizeof(why), "rank %d failed, its log says why", failed);
        group_lose(g, "a step", why, &e);
        if (d->fault.kind == ERR_NONE)
            d->fault = e;
        return STEP_FAILED;
    }
    return equal ? mine : least == STEP_RUN ? STEP_RUN : STEP_CAPTURE;
}

/* ---------------------------------------------------------------- collectives */

static int fault_of(const struct group *g, struct err *e)
{
    const struct err *bad = g->lost.kind != ERR_NONE ? &g->lost : &g->d->fault;
    if (bad->kind == ERR_NONE)
        return 0;
    *e = *bad;
    return -1;
}

/* Everything to every rank, which adds it up. */
static void gather_and_add(struct group *g, float *x, size_t n)
{
    float *all = cuda_work(g->d, WORK_GATHER, (size_t)g->base.world * n * sizeof(float));
    if (!all)
        return;
    nccl_gather(g->nccl, x, all, n);
    struct rank_sum_args a = {x, all, x, n, (uint32_t)g->base.world, (uint32_t)g->base.rank};
    RECORD(g->d, rank_sum_launch, a);
}

/* Each rank adds its own part, then the parts are sent to every rank. */
static void scatter_and_add(struct group *g, float *x, size_t share)
{
    float *all = cuda_work(g->d, WORK_GATHER, (size_t)g->base.world * share * sizeof(float));
    float *mine = x + (size_t)g->base.rank * share;
    if (!all)
        return;
    nccl_scatter(g->nccl, x, all, share);
    struct rank_sum_args a = {
        mine, all, mine, share, (uint32_t)g->base.world, (uint32_t)g->base.rank};
    RECORD(g->d, rank_sum_launch, a);
    nccl_gather(g->nccl, mine, x, share); /* in place, as NCCL has it */
}

static void nccl_all_reduce(struct group *g, float *x, size_t n)
{
    const size_t world = (size_t)g->base.world;
    for (size_t at = 0, len; at < n; at += len) {
        len = n - at < CHUNK ? n - at : CHUNK;
        if (world == 2 || len * sizeof(float) <= GATHER_BYTES) {
            gather_and_add(g, x + at, len);
        } else {
            len = len / world * world; /* the rest comes next, and is small */
            scatter_and_add(g, x + at, len / world);
        }
    }
}

static int all_reduce(struct comm *base, float *x, size_t n, struct err *e)
{
    struct group *g = (struct group *)base;
    if (fault_of(g, e))
        return -1;
    if (!n)
        return 0;
    if (g->oneshot && oneshot_takes(g->oneshot, x, n))
        oneshot_all_reduce(g->oneshot, x, n);
    else if (g->nccl)
        nccl_all_reduce(g, x, n);
    else
        return host_all_reduce(g, x, n, e);
    return fault_of(g, e);
}

static int all_gather(struct comm *base, const float *in, float *out, size_t n, struct err *e)
{
    struct group *g = (struct group *)base;
    if (fault_of(g, e))
        return -1;
    if (!n)
        return 0;
    if (!g->nccl)
        return host_all_gather(g, in, out, n, e);
    nccl_gather(g->nccl, in, out, n);
    return fault_of(g, e);
}

/* The operations that make or read what is sent run first. */
static int before_message(struct group *g, struct err *e)
{
    cuda_flush_part(g->d);
    return fault_of(g, e);
}

static int send(struct comm *base, int to, const float *x, size_t n, struct err *e)
{
    struct group *g = (struct group *)base;
    return before_message(g, e) ? -1 : nccl_send(g->nccl, to, x, n, e);
}

static int recv(struct comm *base, int from, float *x, size_t n, struct err *e)
{
    struct group *g = (struct group *)base;
    return before_message(g, e) ? -1 : nccl_recv(g->nccl, from, x, n, e);
}

static int barrier(struct comm *base, struct err *e)
{
    struct group *g = (struct group *)base;
    return g->host->ops->barrier(g->host, e);
}

static int check(struct comm *base, struct err *e)
{
    struct group *g = (struct group *)base;
    return g->host->ops->check(g->host, e);
}

/* Does not wait for the other ranks, which may have ended: whatever waits for them on the device is
 * ended before the device is waited for. */
static void leave(struct comm *base)
{
    struct group *g = (struct group *)base;
    cuda_flush(g->d, false);
    if (g->oneshot)
        oneshot_stop(g->oneshot);
    if (g->nccl)
        nccl_close(g->nccl);
    if (g->oneshot)
        oneshot_close(g->oneshot);
    cudaFreeHost(g->buf);
    for (struct group **at = &g->d->group; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    free(g->cards), free(g->votes), free(g);
}

/* ---------------------------------------------------------------- forming */

static int exchange_cards(struct group *g, struct err *e)
{
    struct card mine = {.nccl = nccl_version(), .features = g->d->features};
    if (cudaDeviceGetPCIBusId(mine.bus_id, sizeof(mine.bus_id), g->d->index) != cudaSuccess)
        snprintf(mine.bus_id, sizeof(mine.bus_id), "rank %d", g->base.rank);
    if (comm_gather_bytes(g->host, &mine, g->cards, sizeof(mine), e))
        return -1;
    assert(g->cards);
    for (int r = 0; !g->messages && r < g->base.world;
         r++) /* what one rank lacks is used by none */
        g->d->features &= g->cards[r].features;
    return 0;
}

static void append(char *text, size_t size, const char *more)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", more);
}

/* Sums of each transport have an order of their own; messages add nothing. */
static void describe(struct group *g)
{
    const uint32_t v = g->cards[0].nccl;
    char nccl[40] = "the hosts", words[96];
    if (g->nccl)
        snprintf(nccl, sizeof(nccl), "NCCL %u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    snprintf(words, sizeof(words), ", %s by %s%s", g->messages ? "messages" : "sums",
             g->oneshot ? "peers' memory and " : "", nccl);
    append(g->d->describe, sizeof(g->d->describe), words);
    if (!g->messages)
        append(g->d->arithmetic, sizeof(g->d->arithmetic), words);
}

/* A group whose ranks know each other; NULL with `e`. */
static struct group *meet(struct device *d, struct comm *host, const struct comm_ops *ops,
                          bool messages, struct err *e)
{
    struct group *g = calloc(1, sizeof(*g));
    const size_t world = (size_t)host->world;
    if (!g)
        return err_nomem(e), NULL;
    g->base = (struct comm){ops, host->rank, host->world, host->nodes};
    g->d = d, g->host = host, g->messages = messages;
    g->cards = calloc(world, sizeof(*g->cards));
    g->votes = calloc(world, sizeof(*g->votes));
    g->next = d->group;
    d->group = g;
    if ((g->cards && g->votes ? 0 : err_nomem(e)) || exchange_cards(g, e)) {
        leave(&g->base);
        return NULL;
    }
    return g;
}

struct comm *cuda_comm_open(struct device *d, struct comm *host, struct err *e)
{
    static const struct comm_ops ops = {all_reduce, all_gather, barrier, check, leave};
    struct group *g = meet(d, host, &ops, false, e);
    if (!g)
        return NULL;
    if (oneshot_open(g, oneshot_bytes(host->world), e) || nccl_open(g, e)) {
        leave(&g->base);
        return NULL;
    }
    g->base.enqueues = g->nccl; /* the other transport is through the host */
    describe(g);
    return &g->base;
}

int cuda_link_open(struct device *d, struct comm *host, struct comm **out, struct err *e)
{
    static const struct comm_ops ops = {
        .barrier = barrier, .check = check, .close = leave, .send = send, .recv = recv};
    struct group *g = meet(d, host, &ops, true, e);
    *out = NULL;
    if (!g)
        return -1;
    const int rc = nccl_open(g, e);
    if (rc || !g->nccl) {
        leave(&g->base);
        return rc;
    }
    g->base.enqueues = true;
    describe(g);
    *out = &g->base;
    return 0;
}
