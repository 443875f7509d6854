/* edge.h - what all requests share: the model's text side, the limits, the permits, the doors
 * below.
 *
 * Built by main before the loop starts; `infer` appears when the shards have warmed up, and until
 * then everything that generates is answered 503. */
#ifndef ROUTER_EDGE_H
#define ROUTER_EDGE_H
#include "common/mailbox.h"
#include "common/metrics.h"
#include "common/tokenizer/tokenizer.h"
#include "router/drain.h"
#include "router/flags.h"
#include "router/http.h"
#include "router/infer.h"
#include "router/validate.h"
#include "router/workers.h"
#include <stdatomic.h>
#include <stdbool.h>

struct chat; /* router/chat/chat.h */

struct edge {
    const struct router_config *config;
    struct metrics *metrics;
    const struct tokenizer *tokenizer;
    const struct chat *chat;
    struct workers *workers;
    struct http *http;
    struct lmtp *lmtp;                /* router/lmtp/lmtp.h */
    const char *model_id, *model_sha; /* sha: NULL unknown */
    char fingerprint[64];             /* system_fingerprint of OpenAI's answers */
    const char *compute_type;
    bool has_keys; /* clients must show one */

    _Atomic(struct infer *) infer; /* NULL: not warmed up */
    struct infer_limits limits;    /* valid once infer is set */
    atomic_uint permits;           /* free ones */
    atomic_bool draining;
    atomic_uint live;   /* calls not yet freed */
    struct drain drain; /* loop thread only */

    struct mailbox done;   /* calls back from the workers */
    struct mailbox events; /* notes from the scheduler */
};

/* Callbacks of the loop; `arg` is the edge. */
extern const struct http_events edge_events;

/* The shards are ready: generations are served from here on. Any thread, once. */
void edge_open(struct edge *g, struct infer *i);
/* Why requests are refused now, or NULL. Any thread. */
const char *edge_closed(struct edge *g);
struct validator edge_validator(const struct edge *g);
#endif
