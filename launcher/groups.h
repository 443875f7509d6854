/* groups.h - groups of shards beside each other, each with a life of its own: models that the
 * router asks for while it serves (docs/decisions/on-demand-models.md has the messages), and the
 * replicas of the first model (docs/decisions/fleet.md), which are started with the launch.
 *
 * A slot is one group: FREE -> LOADING -> READY -> STOPPING -> FREE. A group that loses a rank
 * while it is READY is started again: READY -> RESTARTING -> LOADING -> READY, as often as the
 * first model's shards are (restarts.h); the router finds it at the same sockets. The slots of the
 * models come first; the router knows of no others. The children are the supervisor's, two for each
 * rank (shard and probe); this says what their coming and going means. Main thread only. */
#ifndef LAUNCHER_GROUPS_H
#define LAUNCHER_GROUPS_H
#include "launcher/child.h"

struct group;
struct groups {
    const struct plan *base; /* what every group has in common */
    struct group *v;
    uint32_t n, n_models, n_ranks; /* slots, in all and of models */
    struct child *children;        /* [n * 2 * n_ranks], shard and probe of each rank */
    int fd, router_fd;             /* our end of the channel, and the router's; -1: none */
    bool ending;                   /* the launch ends: nothing is started again */
};

/* Room for `n_models` and `n_replicas`; both 0: everything below does nothing. */
int groups_init(struct groups *g, const struct plan *base, uint32_t n_models, uint32_t n_replicas,
                struct child *children, struct err *e);
void groups_start_replicas(struct groups *g); /* those that do not run */
uint32_t groups_ready_replicas(const struct groups *g);
/* All replicas have failed, and are not started again; NULL: not so; else why the last one did. */
const char *groups_failed(const struct groups *g);
void groups_read(struct groups *g);                 /* the router has said something */
void groups_lost(struct groups *g, uint32_t child); /* children[child] has ended */
void groups_end(struct groups *g);                  /* from now on nothing is started again */
int64_t groups_deadline(const struct groups *g);    /* when groups_late() is due; 0: never */
void groups_late(struct groups *g, int64_t now);
void groups_free(struct groups *g); /* no child is left */
#endif
