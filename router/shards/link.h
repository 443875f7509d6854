/* link.h - finds a group of shards, and finds it again after it was lost: a thread of its
 * own that may block, beside a loop that must not. The draft model is found by it, and the served
 * model's shards when their launcher has started them again. */
#ifndef ROUTER_SHARDS_LINK_H
#define ROUTER_SHARDS_LINK_H
#include "common/rpc_loop.h"
#include "router/shards/start.h"

/* The state of a user of the shards: its connection to them.
 *
 *  CONNECTED -> BROKEN -> CLOSING -> DISCONNECTED -> CONNECTED
 *  BROKEN: calls are pending. CLOSING: watches are ending. DISCONNECTED: the link looks for new
 *  shards. */
enum link_state { LINK_CONNECTED, LINK_BROKEN, LINK_CLOSING, LINK_DISCONNECTED };

struct shards_link_options {
    struct rpc_loop *loop;  /* runs, on another thread */
    const char *name;       /* whose shards, for the log */
    const char *target;     /* of rank 0 */
    struct shard_model ask; /* what Warmup is asked for; lists in it are not read */
    /* Why shards that are there cannot serve; NULL: they can. On the link's thread. */
    const char *(*unfit)(void *arg, const struct shard_model *m);
    /* What they have to be told before they are used; NULL: nothing. -1: they are lost again. On
     * the link's thread. */
    int (*prepare)(void *arg, struct shards *s, const struct shard_model *m, struct err *e);
    /* On the loop's thread: they are there, warmed up, and the callee's until shards_link_lost().
     * It has neither adapters nor labels. */
    void (*found)(void *arg, struct shards *s, const struct shard_model *m);
    /* On the loop's thread: not within patience_ms, or a listener says nothing for
     * silence_ms, or they are unfit. It looks no more. Only where patience_ms is not 0. */
    void (*missed)(void *arg, const char *why);
    void *arg;
    int64_t patience_ms, silence_ms; /* 0: looks for ever */
};

struct shards_link;
/* Into *out, before its thread starts; NULL after an error. `look`: it begins to look, else at the
 * first loss. */
int shards_link_open(struct shards_link **out, const struct shards_link_options *o, bool look,
                     struct err *e);
/* Loop thread: they cannot serve any more, and nothing is pending on them. Frees them and looks
 * for others. */
void shards_link_lost(struct shards_link *l, struct shards *s);
/* Any other thread, while the loop runs: looks no more; blocks until the thread has ended. */
void shards_link_halt(struct shards_link *l);
/* Loop thread, after that: gone(arg) once nothing of this is pending there. */
void shards_link_end(struct shards_link *l, void (*gone)(void *arg), void *arg);
void shards_link_free(struct shards_link *l); /* after the loop has ended; NULL is fine */
#endif
