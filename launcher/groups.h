/* groups.h - groups of shards with independent life cycles: models loaded on demand
 * (docs/decisions/on-demand-models.md describes the messages), and replicas of the first model
 * (docs/decisions/fleet.md), which start with the launch.
 *
 * A slot is one group: FREE -> LOADING -> READY -> STOPPING -> FREE. A READY group that loses a
 * rank is restarted: READY -> RESTARTING -> LOADING -> READY, as often as the first model's shards
 * (restarts.h). The router reconnects to the same sockets. A LOADING group is restarted once if a
 * rank was ended by SIGKILL or SIGTERM; the router receives only the result. The slots of models
 * come first; the router uses only these. The children are the supervisor's, two per rank (shard
 * and probe). Main thread only. */
#ifndef LAUNCHER_GROUPS_H
#define LAUNCHER_GROUPS_H
#include "launcher/process/child.h"

struct group;
struct groups {
    const struct plan *base; /* settings shared by all groups */
    struct group *v;
    uint32_t n, n_models, n_ranks; /* slots, in total and for models */
    struct child *children;        /* [n * 2 * n_ranks], shard and probe of each rank */
    int fd, router_fd;             /* our end of the channel, and the router's; -1: none */
    bool ending;                   /* the launch is ending: nothing is restarted */
};

/* Allocates slots for `n_models` and `n_replicas`. If both are 0, all functions do nothing. */
int groups_init(struct groups *g, const struct plan *base, uint32_t n_models, uint32_t n_replicas,
                struct child *children, struct err *e);
void groups_start_replicas(struct groups *g); /* starts those that do not run */
uint32_t groups_ready_replicas(const struct groups *g);
/* If all replicas have failed and are not restarted: why the last one did. Otherwise NULL. */
const char *groups_failed(const struct groups *g);
int groups_exit_code(const struct groups *g); /* with it: of the child that the last one lost */
void groups_read(struct groups *g);           /* reads a message of the router */
void groups_lost(struct groups *g, uint32_t child); /* children[child] has ended */
void groups_end(struct groups *g);                  /* no restart from now on */
/* time of the next groups_late() in ms; 0: none */
int64_t groups_deadline(const struct groups *g);
void groups_late(struct groups *g, int64_t now);
void groups_free(struct groups *g); /* no child may be left */
#endif
