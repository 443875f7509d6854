/* link.h - connects to a group of shards, and reconnects after a loss, on a thread of its own that
 * may block. It is used for the draft model, and for the served model's shards when their launcher
 * has restarted them. */
#ifndef ROUTER_SHARDS_LINK_H
#define ROUTER_SHARDS_LINK_H
#include "common/rpc/loop.h"
#include "router/shards/start.h"

/* Connection state of a user of the shards.
 *
 *   CONNECTED -> BROKEN -> CLOSING -> DISCONNECTED -> CONNECTED
 *
 * BROKEN: calls are in flight. CLOSING: connection watches are ending. DISCONNECTED: the link
 * searches for shards. */
enum link_state { LINK_CONNECTED, LINK_BROKEN, LINK_CLOSING, LINK_DISCONNECTED };

struct shards_link_options {
    struct rpc_loop *loop;  /* runs, on another thread */
    const char *name;       /* the name in log messages */
    const char *target;     /* address of rank 0 */
    struct shard_model ask; /* the request for Warmup; its lists are not read */
    /* Why connected shards cannot serve; NULL: they can. Link thread. */
    const char *(*unfit)(void *arg, const struct shard_model *m);
    /* Prepares new shards before use, such as loading adapters; NULL: nothing to do. -1: they are
     * lost again. Link thread. */
    int (*prepare)(void *arg, struct shards *s, const struct shard_model *m, struct err *e);
    /* The shards are connected and warmed up. The callee owns them until shards_link_lost(). `m`
     * has neither adapters nor labels. Loop thread. */
    void (*found)(void *arg, struct shards *s, const struct shard_model *m);
    /* No shards within patience_ms, a listener that does not answer for 15 s, or unfit shards. The
     * link stops searching. Only if patience_ms is not 0. Loop thread. */
    void (*missed)(void *arg, const char *why);
    void *arg;
    int64_t patience_ms; /* 0: searches forever */
};

struct shards_link;
/* Creates a link in *out, before its thread starts; NULL after an error. `look`: start searching at
 * once, otherwise at the first loss. */
int shards_link_open(struct shards_link **out, const struct shards_link_options *o, bool look,
                     struct err *e);
/* Loop thread: returns lost shards with nothing pending on them. Frees them and starts to
 * search. */
void shards_link_lost(struct shards_link *l, struct shards *s);
/* Any other thread, while the loop runs: stops the search. Blocks until the link thread has
 * ended. NULL: nothing to do. */
void shards_link_halt(struct shards_link *l);
/* Loop thread, after shards_link_halt(): calls gone(arg) once nothing of the link is pending; at
 * once if `l` is NULL. */
void shards_link_end(struct shards_link *l, void (*gone)(void *arg), void *arg);
void shards_link_free(struct shards_link *l); /* after the loop has ended; NULL is allowed */
#endif
