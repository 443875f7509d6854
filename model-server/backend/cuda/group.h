/* group.h - a device among the devices of other ranks: how they exchange, and what happens when one
 * is lost.
 *
 * Three ways, chosen by the size of a message alone, so that all ranks choose alike; the limits are
 * in group.c. All add up in rank order: which way was taken shows in no bit.
 *   oneshot  every rank writes into every other's memory; one kernel, no library
 *   nccl     NCCL moves, a kernel of ours adds up
 *   host     down, through the communicator of the hosts, up again; works anywhere
 * The first two are recorded like any operation, and so are captured and replayed with a step.
 * Messages between stages of a pipeline go by NCCL too, and are not captured: stages need not agree
 * on their steps. They have a communicator of their own. One stream, one thread. */
#ifndef MODEL_SERVER_BACKEND_CUDA_GROUP_H
#define MODEL_SERVER_BACKEND_CUDA_GROUP_H
#include "model-server/backend/cuda/cuda.h"
#include "model-server/comm/comm.h"

enum { GROUP_TIMEOUT_S = 120 };

/* A rank's properties, exchanged when the group forms. */
struct card {
    uint32_t nccl;     /* version; 0: no library */
    uint32_t features; /* enum cuda_feature */
    char bus_id[32];   /* of its GPU */
};

struct group {
    struct comm base; /* what the model gets */
    struct group *next;
    struct device *d;
    struct comm *host;
    bool messages;           /* alone, without collectives: not captured */
    struct card *cards;      /* [world] */
    float *votes;            /* [world] */
    struct nccl *nccl;       /* NULL: not here */
    struct oneshot *oneshot; /* NULL: not here */
    float *buf;              /* buffer for the transport through the host, pinned */
    size_t cap;              /* floats */
    struct err lost;         /* the first failure: nothing is computed after it */
};

/* Both on one machine and on the same GPU of it. */
bool group_same_gpu(const struct group *g, int a, int b);
/* Marks the device's groups as lost. The error names the rank that died, if one is known, else
 * `why`. Ends waits on the device. Returns -1. */
int group_lose(struct group *g, const char *what, const char *why, struct err *e);

/* For loops that wait: yields the core, checks now and then whether the other ranks live, and
 * gives up after GROUP_TIMEOUT_S. Initialise with {0}. */
struct vigil {
    double start, looked;
};
int group_vigil(struct group *g, struct vigil *v, const char *what, struct err *e);

/* group_host.c: waits for the device. */
int host_all_reduce(struct group *g, float *x, size_t n, struct err *e);
int host_all_gather(struct group *g, const float *in, float *out, size_t n, struct err *e);

/* nccl.c. nccl_version() loads the library (0: there is none). nccl_open() is collective and
 * needs the cards; g->nccl stays NULL, without an error, if NCCL does not suit all ranks.
 * nccl_state(): 0, 1 while NCCL is processing the last call, -1 if it has failed (`why`). The two
 * collectives are recorded: out is [world][n]. `scatter` sends part r of x, n floats, to rank r.
 * It receives the other ranks' versions of this rank's part in out, whose own entry is
 * unchanged. Messages are enqueued at once, after recorded operations have been. */
uint32_t nccl_version(void);
int nccl_open(struct group *g, struct err *e);
int nccl_state(struct nccl *n, const char **why);
void nccl_gather(struct nccl *n, const float *in, float *out, size_t count);
void nccl_scatter(struct nccl *n, const float *x, float *out, size_t count);
int nccl_send(struct nccl *n, int to, const float *x, size_t count, struct err *e);
int nccl_recv(struct nccl *n, int from, float *x, size_t count, struct err *e);
void nccl_abort(struct nccl *n);
void nccl_close(struct nccl *n);

/* oneshot.c. oneshot_open() is collective and needs the cards; g->oneshot stays NULL, without an
 * error, if a rank cannot write into the memory of another. oneshot_missing(): the rank that did
 * not arrive in time, -1: all arrived. oneshot_stop() ends a waiting kernel. */
int oneshot_open(struct group *g, size_t max_bytes, struct err *e);
bool oneshot_takes(const struct oneshot *s, const float *x, size_t n);
void oneshot_all_reduce(struct oneshot *s, float *x, size_t n); /* recorded */
int oneshot_missing(const struct oneshot *s);
void oneshot_stop(struct oneshot *s);
void oneshot_close(struct oneshot *s);
#endif
