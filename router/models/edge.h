/* edge.h - state shared by all requests to one model: text processing, limits, permits and queues.
 *
 * Other models (models.h) have edges of their own. The first model's edge also holds what exists
 * once per process. It is created by main before the loop starts. `fleet` is set when the shards
 * have warmed up; until then generations are answered with 503. */
#ifndef ROUTER_MODELS_EDGE_H
#define ROUTER_MODELS_EDGE_H
#include "common/metrics.h"
#include "common/model/sentence.h"
#include "common/process/startup.h"
#include "common/thread/mailbox.h"
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
struct tracer;   /* common/rpc/trace.h */
struct watchdog; /* common/thread/watchdog.h */

struct models;    /* router/models/models.h */
struct responses; /* router/api/responses/responses.h */
struct store;     /* router/store/store.h */

struct edge {
    struct edge *home;     /* the first model's edge; NULL: this is it */
    struct models *models; /* NULL: only one model */
    const struct router_config *config;
    struct metrics *metrics;
    struct traffic *traffic; /* router/http/traffic.h; of all models */
    struct tracer *tracer;   /* NULL: no tracing */
    const struct tokenizer *tokenizer;
    const struct chat *chat;
    struct sampling_defaults defaults;
    const struct vision *vision; /* NULL: the model takes text only */
    struct sentence sentence;    /* prompts of an embedding model */
    uint64_t vocab_hash;         /* equal for equal vocabularies */
    struct workers *workers;
    struct http *http;
    struct watchdog *watchdog;        /* NULL: none; first model only */
    struct lmtp *lmtp;                /* router/api/lmtp/lmtp.h */
    const char *model_id, *model_sha; /* sha: NULL if unknown */
    char fingerprint[64];             /* system_fingerprint of OpenAI's answers */
    char engine_id[33];               /* random per process, for kv_transfer_params */
    const char *compute_type;
    struct startup_board *startup; /* start progress; never NULL once it runs */
    int64_t started_unix;          /* when the server began, in seconds since 1970 */
    bool has_keys;                 /* requests need an API key */

    _Atomic(struct fleet *) fleet; /* NULL: not warmed up */
    struct infer_limits limits;    /* valid once fleet is set */
    struct admission admission;    /* permits for generations */
    struct drain drain;            /* loop thread only */
    /* log_dropped() already counted in the metric; loop thread only */
    uint64_t n_log_dropped;

    /* first model only */
    struct store *store;          /* NULL: no store */
    struct responses *background; /* responses without a client; loop thread only */
    struct image_decoder *decoder;
    struct media_rules media_rules;
    atomic_uint fetching; /* images being fetched */
    atomic_bool draining;
    atomic_uint failed;    /* generations of all models ended by a shard failure */
    atomic_uint live;      /* calls of all models not freed yet */
    struct mailbox done;   /* calls returning from the workers */
    struct mailbox events; /* events from the scheduler */
};

static inline struct edge *edge_home(struct edge *g) { return g->home ? g->home : g; }

/* chat_load() with the options of `c`. */
struct chat *edge_load_chat(const struct router_config *c, const char *dir, const char *config_path,
                            const struct tokenizer *t, struct err *e);
void edge_set_text(struct edge *g, const struct tokenizer *t, const struct chat *c);
/* Loads the image processing of the model in `dir` into *out and enables it in `c`. *out is NULL if
 * the model takes none, or if its files are unusable, which is logged. -1: out of memory. */
int edge_load_vision(const char *dir, const struct tokenizer *t, struct chat *c,
                     struct vision **out, struct err *e);
/* Reads the server's sampling parameters for the model in `dir`, by the flags. */
int edge_load_defaults(struct edge *g, const struct router_config *c, const char *dir,
                       struct err *e);
/* The shards are ready: generations are served from now on. Any thread, once. */
void edge_open(struct edge *g, struct fleet *f);
/* Progress of the shards' start; phase STARTUP_NONE if unknown. Any thread. */
struct startup_view edge_startup(const struct edge *g);
/* Updates the metrics of the start phases. Any thread. */
void edge_publish_startup(const struct edge *g);
/* The shards' limits; all zero before they are ready. Any thread. */
const struct infer_limits *edge_limits(const struct edge *g);
/* Why requests are refused now, or NULL. Any thread. */
const char *edge_closed(struct edge *g);
struct validator edge_validator(const struct edge *g);
/* Image processing for its prompts; without vision if the shards take no images. Any thread. */
struct media edge_media(const struct edge *g);
/* The current adapters; NULL: unknown. Any thread. */
struct adapter_shelf *edge_adapters(const struct edge *g);
bool edge_has_adapter(const struct edge *g, const char *name); /* at this moment; any thread */
/* The adapter that a request's `model` names: that string, or NULL. If adapters are loaded at run
 * time it may be gone already: an unknown name is never served by the base model. Any thread. */
const char *edge_adapter(struct edge *g, const char *model);
/* The scheduler's settings from the flags; without metrics. */
struct infer_config edge_infer_config(struct edge *home);
#endif
