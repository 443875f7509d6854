/* state.h - private to this folder: the embedder's state. */
#ifndef ROUTER_EMBED_STATE_H
#define ROUTER_EMBED_STATE_H
#include "router/embed/embedder.h"
#include "router/shards/link.h"
#include "router/shards/served_adapters.h"

/* One text of the call in flight. */
struct embed_slot {
    struct embed_job *job;
    uint32_t text;
};

struct embedder {
    struct embedder_options o;
    struct adapter_shelf shelf;
    struct metric_shares gauges; /* gauges summed over several schedulers */
    struct fair queue;
    uint64_t order;
    uint32_t n_jobs; /* jobs that are not done */
    struct embed_slot *slots;
    uint32_t n_slots, cap_slots;
    bool again; /* the slots must be sent again */
    struct fan call, health;
    struct rpc_mem mem; /* of the call in flight and its answer */
    int64_t called_ns;
    enum link_state link_state;
    struct shards_link *link;         /* NULL: a loss is final */
    struct served_adapters *restored; /* the link's, until new shards are connected */
    bool watched, draining, stopping, lost, ending;
    char why_lost[400];
    int64_t lost_ns;
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;
    void (*gone)(void *arg);
    void *gone_arg;
};

/* embedder.c: sends the next call if possible. */
void embedder_turn(struct embedder *s);

/* embedder.c: true if the shards have the adapter of its texts; false: `e` says so. */
bool embedder_has_adapter(struct embedder *s, const struct embed_job *j, struct err *e);
/* embedder.c: takes texts of requests with an error out of a call that will be sent again. */
void embedder_drop_failed(struct embedder *s);

/* recover.c */
int embedder_recover_init(struct embedder *s, struct err *e);
void embedder_recover_turn(struct embedder *s);
/* The call in flight, or the connection, shows that a shard is lost. */
void embedder_broken(struct embedder *s, const char *why);
void embedder_answered(struct embedder *s);

/* handover.c: gives all requests to the owner, if there is one and the shards are lost. */
void embedder_hand_over(struct embedder *s);
#endif
