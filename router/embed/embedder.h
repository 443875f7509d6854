/* embedder.h - the queue of a model that gives vectors or scores: texts -> Embed.
 *
 * One call is out at any time, with as many whole texts as one step of the shards takes
 * (max_batch_prefill_tokens). Requests take turns a few texts at a time, and keys by the tokens
 * that they were served (router/scheduler/fair.h), so that a long list does not hold up a short
 * one. Shards that are lost and come back get the call again that was out; what waits, waits.
 *
 * Every function runs on the loop's thread unless it says otherwise; router/generate/infer.c is the
 * entry point for other threads. */
#ifndef ROUTER_EMBED_EMBEDDER_H
#define ROUTER_EMBED_EMBEDDER_H
#include "common/buf.h"
#include "common/metrics.h"
#include "router/scheduler/fair.h"
#include "router/scheduler/scheduler.h"

struct embed_text {
    const uint32_t *ids;
    const uint8_t *types; /* [n], or NULL: all 0 */
    uint32_t n;
    uint32_t skip; /* tokens of a prompt that a mean leaves out */
};

/* The texts of one request. Its creator keeps it and what it points to until done(). */
struct embed_job {
    const struct embed_text *texts;
    uint32_t n;
    bool all; /* the hidden states of all tokens */
    uint64_t tenant;
    int32_t priority;
    const atomic_bool *cancelled; /* the client has gone */
    /* Once, on the loop's thread: err.kind is ERR_NONE and `values` is there, or it is not. */
    void (*done)(struct embed_job *j);
    float *values; /* [n][width], or [tokens of all texts][width]; the creator frees it */
    uint32_t width;
    size_t n_values;
    struct err err;
    int64_t queued_ns, begun_ns, ended_ns; /* monotonic; 0: it did not come to that */
    /* the embedder's */
    struct fair_item fair;
    bool waiting;
    uint32_t next, in_flight, n_lost;
    size_t room;
};

struct embedder_options {
    struct shards *shards; /* the embedder's, once embedder_new() has succeeded */
    struct rpc_loop *loop;
    const char *target;
    uint32_t return_ms; /* shards that are lost may come back within it; 0: a loss is final */
    struct shard_model model;
    struct metrics *metrics; /* NULL: none */
    struct sched_status *status;
    atomic_uint *failed; /* counts the requests that a failure of the shards ended; NULL: none */
};

struct embedder;
struct embedder *embedder_new(const struct embedder_options *o, struct err *e);
void embedder_free(struct embedder *s); /* after embedder_stop() was through */
void embedder_watch(struct embedder *s);
void embedder_add(struct embedder *s, struct embed_job *j); /* may end it at once */

/* As sched_probe(), sched_on_lost() ... of router/scheduler/scheduler.h. */
void embedder_probe(struct embedder *s);
void embedder_on_lost(struct embedder *s, void (*fn)(void *arg, const char *why), void *arg);
bool embedder_audit(const struct embedder *s, struct buf *out);
void embedder_drain(struct embedder *s, const char *why);
void embedder_fail(struct embedder *s, const char *why);
void embedder_halt(struct embedder *s); /* any other thread */
void embedder_stop(struct embedder *s, void (*gone)(void *arg), void *arg);
#endif
