/* embedder.h - the queue of a model that computes embeddings or scores: texts -> Embed.
 *
 * At most one call is in flight, with as many whole texts as one step of the shards takes
 * (max_batch_prefill_tokens). Requests alternate after a few texts, and keys are scheduled by their
 * served tokens (router/scheduler/fair.h), so a long list does not block a short one. After a loss
 * the new shards get the call in flight again; queued requests stay queued. With an owner all
 * requests are handed over to it instead.
 *
 * Every function runs on the loop thread unless noted. Other threads use
 * router/generate/infer.c. */
#ifndef ROUTER_EMBED_EMBEDDER_H
#define ROUTER_EMBED_EMBEDDER_H
#include "common/buf.h"
#include "common/metrics.h"
#include "router/scheduler/fair.h"
#include "router/scheduler/scheduler.h"

struct embed_text {
    const uint32_t *ids;
    const uint8_t *types; /* [n] token types, or NULL: all 0 */
    uint32_t n;
    uint32_t skip;     /* leading prompt tokens that mean pooling excludes */
    uint32_t attended; /* tokens from here on are attended to by none; 0: all are */
    /* with job.all: the only tokens whose rows are results, ascending; NULL: all of them */
    const uint32_t *rows;
    uint32_t n_rows;
    const char *adapter; /* its name, the same for all texts of a request; NULL: the base model */
    const struct gen_medium *media; /* [n_media] its images, in order; n_bytes: all their files' */
    uint32_t n_media;
    uint64_t n_bytes;
    uint32_t cost; /* tokens that it takes of a batch; 0: n. More of an image that is one token */
};

static inline uint32_t embed_text_rows(const struct embed_text *t)
{
    return t->rows ? t->n_rows : t->n;
}

/* The texts of one request. The creator owns it and its data, and keeps both until done(). */
struct embed_job {
    const struct embed_text *texts;
    uint32_t n;
    bool all; /* return hidden states of all tokens */
    uint64_t tenant;
    int32_t priority;
    const atomic_bool *cancelled; /* the client has disconnected */
    /* Called once on the loop thread: err.kind is ERR_NONE and `values` is set, or an error. */
    void (*done)(struct embed_job *j);
    float *values; /* [n][width], or [tokens of all texts][width]; the creator frees it */
    uint32_t width;
    size_t n_values;
    struct err err;
    int64_t queued_ns, begun_ns, ended_ns; /* monotonic; 0: not reached */
    /* private */
    struct fair_item fair;
    bool waiting;
    uint32_t next, in_flight, n_lost;
    size_t room;
    struct fleet_texts *entry; /* router/fleet/texts.c */
};

struct embedder_options {
    struct shards *shards; /* owned by the embedder once embedder_new() has succeeded */
    struct rpc_loop *loop;
    const char *target;
    uint32_t return_ms; /* how long lost shards may take to return; 0: a loss is final */
    struct shard_model model;
    struct metrics *metrics; /* NULL: no metrics */
    struct sched_status *status;
    /* counts requests that ended because of a shard failure; NULL: not counted */
    atomic_uint *failed;
    const struct sched_owner *owner; /* NULL: texts wait until the shards return; not owned */
};

struct embedder;
struct embedder *embedder_new(const struct embedder_options *o, struct err *e);
/* The adapters that the shards have. Any thread. */
struct adapter_shelf *embedder_shelf(struct embedder *s);
void embedder_free(struct embedder *s); /* after `gone` of embedder_stop() */
void embedder_watch(struct embedder *s);
void embedder_add(struct embedder *s, struct embed_job *j); /* may end it at once */

/* As sched_probe(), sched_on_lost(), sched_abandon() and so on in router/scheduler/scheduler.h. */
void embedder_probe(struct embedder *s);
void embedder_on_lost(struct embedder *s, void (*fn)(void *arg, const char *why), void *arg);
bool embedder_audit(const struct embedder *s, struct buf *out);
void embedder_drain(struct embedder *s, const char *why);
void embedder_fail(struct embedder *s, const char *why);
void embedder_abandon(struct embedder *s, const char *why);
void embedder_halt(struct embedder *s); /* any other thread */
void embedder_stop(struct embedder *s, void (*gone)(void *arg), void *arg);
#endif
