/* edge.h - what all requests to one model share: its text side, the limits, the permits, the entry
 * points below. Those of other models (models.h) have edges of their own; the first model's also
 * has what is there once.
 *
 * Built by main before the loop starts; `infer` appears when the shards have warmed up, and until
 * then everything that generates is answered 503. */
#ifndef ROUTER_MODELS_EDGE_H
#define ROUTER_MODELS_EDGE_H
#include "common/mailbox.h"
#include "common/metrics.h"
#include "common/sentence.h"
#include "common/startup.h"
#include "common/tokenizer/tokenizer.h"
#include "router/flags.h"
#include "router/fleet/fleet.h"
#include "router/generate/admission.h"
#include "router/generate/drain.h"
#include "router/generate/validate.h"
#include "router/generate/workers.h"
#include "router/http/http.h"
#include <stdatomic.h>
#include <stdbool.h>

struct chat;     /* router/chat/chat.h */
struct vision;   /* common/vision/vision.h */
struct tracer;   /* common/trace.h */
struct watchdog; /* common/watchdog.h */

struct models;    /* router/models/models.h */
struct responses; /* router/api/responses/responses.h */
struct store;     /* router/store/store.h */

struct edge {
    struct edge *home;     /* the first model's; NULL: this is it */
    struct models *models; /* NULL: there is one model alone */
    const struct router_config *config;
    struct metrics *metrics;
    struct tracer *tracer; /* NULL: no spans are sent */
    const struct tokenizer *tokenizer;
    const struct chat *chat;
    const struct vision *vision; /* NULL: the model takes text only */
    struct sentence sentence;    /* prompts of a model that embeds */
    uint64_t vocab_hash;         /* equal for equal vocabularies */
    struct workers *workers;
    struct http *http;
    struct watchdog *watchdog;        /* NULL: none; at home only */
    struct lmtp *lmtp;                /* router/api/lmtp/lmtp.h */
    const char *model_id, *model_sha; /* sha: NULL unknown */
    char fingerprint[64];             /* system_fingerprint of OpenAI's answers */
    char engine_id[33];               /* of this router's life, for kv_transfer_params */
    const char *compute_type;
    struct startup_board *startup; /* of this launch; never NULL once it runs */
    bool has_keys;                 /* clients must show one */

    _Atomic(struct fleet *) fleet; /* NULL: not warmed up */
    struct infer_limits limits;    /* valid once infer is set */
    struct admission admission;    /* permits for generations */
    struct drain drain;            /* loop thread only */
    uint64_t n_log_dropped;        /* of log_dropped(), what the metric has; loop thread only */

    /* at home only */
    struct store *store;          /* NULL: nothing is stored */
    struct responses *background; /* that go on without a client; loop thread only */
    struct image_decoder *decoder;
    struct media_rules media_rules;
    atomic_uint fetching; /* images, now */
    atomic_bool draining;
    atomic_uint failed;    /* generations of all models that a failure of the shards ended */
    atomic_uint live;      /* calls not yet freed, of all models */
    struct mailbox done;   /* calls back from the workers */
    struct mailbox events; /* notes from the scheduler */
};

static inline struct edge *edge_home(struct edge *g) { return g->home ? g->home : g; }

void edge_set_text(struct edge *g, const struct tokenizer *t, const struct chat *c);
/* What the model in `dir` makes of pictures, into *out and `c`; *out is NULL where it takes none,
 * or where its files say nothing usable of them, which the log tells. -1: no memory. */
int edge_load_vision(const char *dir, const struct tokenizer *t, struct chat *c,
                     struct vision **out, struct err *e);
/* The shards are ready: generations are served from here on. Any thread, once. */
void edge_open(struct edge *g, struct fleet *f);
/* Where the shards are in their start; phase STARTUP_NONE where it is not known. Any thread. */
struct startup_view edge_startup(const struct edge *g);
/* Phases of the start as metrics, as they are now. Any thread. */
void edge_publish_startup(const struct edge *g);
/* What the shards can; all zero before they are ready. Any thread. */
const struct infer_limits *edge_limits(const struct edge *g);
/* Why requests are refused now, or NULL. Any thread. */
const char *edge_closed(struct edge *g);
struct validator edge_validator(const struct edge *g);
/* What reads the pictures of its prompts; without vision, where the shards take none. Any thread.
 */
struct media edge_media(const struct edge *g);
/* What adapters there are, for the time being; NULL: not known. Any thread. */
struct adapter_shelf *edge_adapters(const struct edge *g);
bool edge_has_adapter(const struct edge *g, const char *name); /* now; any thread */
/* The adapter that a request's `model` names: that string, or NULL. Where adapters come and go it
 * may not be there any more: a name that is not the model's own is never answered by the model. Any
 * thread. */
const char *edge_adapter(struct edge *g, const char *model);
/* What the flags say about the lower half; without metrics. */
struct infer_config edge_infer_config(struct edge *home);
#endif
