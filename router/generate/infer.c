/* The interface for other threads: each call becomes a message to the scheduler thread. */
#include "router/generate/infer.h"
#include "common/clock.h"
#include "common/rpc/loop.h"
#include "common/thread/mailbox.h"
#include "common/thread/watchdog.h"
#include "router/draft/drafter.h"
#include "router/embed/embedder.h"
#include "router/generate/question.h"
#include "router/scheduler/scheduler.h"
#include "router/shards/shards.h"
#include "router/shards/start.h"
#include <assert.h>
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum mail_kind {
    MAIL_START,
    MAIL_ADD,
    MAIL_EMBED,
    MAIL_CANCEL,
    MAIL_PROBE,
    MAIL_ON_LOST,
    MAIL_DRAIN,
    MAIL_AUDIT,
    MAIL_CHANGE,
    MAIL_FAIL,
    MAIL_ABANDON,
    MAIL_STOP
};
struct command {
    struct mail mail; /* must be first */
    enum mail_kind kind;
    struct seq *seq;       /* ADD */
    struct embed_job *job; /* EMBED */
    uint64_t id;           /* CANCEL */
    void (*on_lost)(void *arg, const char *why);
    void *arg;              /* ON_LOST */
    const char *why;        /* DRAIN, FAIL, ABANDON */
    struct question *audit; /* AUDIT */
    struct adapter_change *change;
};

/* The creator's handle of its request, in the request's arena: the scheduler may free its own part
 * before the creator is notified. */
struct infer_seq {
    uint64_t id;
    const struct infer *at; /* NULL: not submitted */
};

struct infer {
    struct rpc_loop *loop;
    pthread_t thread;
    struct shards *shards;   /* until the scheduler or embedder owns them */
    struct drafter *drafter; /* NULL: none */
    struct scheduler *sched;
    struct embedder *embedder; /* replaces the scheduler for a model that does not generate */
    struct shard_model labels; /* owner of the labels in `limits` */
    struct infer_limits limits;
    uint32_t speculate;

    struct mailbox box;
    struct rpc_op bell;
    /* when the oldest unanswered health check was sent; when the last one was sent */
    _Atomic int64_t asked_ns, asked_last_ns;
    _Atomic uint64_t next_id;
    atomic_bool stopping;
    struct sched_status status;
    struct sched_owner owner;
    struct watchdog *watchdog;
};

enum { ANSWER_OLD_NS = 1000000000, ANSWER_LATE_NS = 2000000000, ASK_AGAIN_NS = 100000000 };

/* ------------------------------------------------------------------ scheduler thread */
static void on_drafter_gone(void *arg)
{
    struct infer *i = arg;
    rpc_loop_stop(i->loop);
}

static void on_gone(void *arg)
{
    struct infer *i = arg;
    if (i->drafter)
        drafter_end(i->drafter, on_drafter_gone, i);
    else
        on_drafter_gone(i);
}

static void audit_answer(const struct scheduler *s, struct question *q)
{
    struct buf b = BUF_INIT;
    const bool balanced = sched_audit(s, &b);
    question_answer(q, &b, balanced);
}

static void audit_answer_texts(const struct embedder *s, struct question *q)
{
    struct buf b = BUF_INIT;
    const bool balanced = embedder_audit(s, &b);
    question_answer(q, &b, balanced);
}

/* The same commands for a model that does not generate. */
static void read_for_texts(struct infer *i, struct command *l)
{
    struct embedder *s = i->embedder;
    switch (l->kind) {
    case MAIL_START:
        embedder_watch(s);
        break;
    case MAIL_EMBED:
        embedder_add(s, l->job);
        break;
    case MAIL_PROBE:
        embedder_probe(s);
        break;
    case MAIL_ON_LOST:
        embedder_on_lost(s, l->on_lost, l->arg);
        break;
    case MAIL_DRAIN:
        embedder_drain(s, l->why);
        break;
    case MAIL_FAIL:
        embedder_fail(s, l->why);
        break;
    case MAIL_AUDIT:
        audit_answer_texts(s, l->audit);
        break;
    case MAIL_STOP:
        embedder_stop(s, on_gone, i);
        break;
    case MAIL_CHANGE: /* there are no adapters */
        err_set(&l->change->err, ERR_VALIDATION,
                "the model does not generate: adapters are not supported");
        l->change->done(l->change);
        break;
    case MAIL_ABANDON:
        embedder_abandon(s, l->why);
        break;
    case MAIL_ADD:
    case MAIL_CANCEL: /* infer_submit() refuses */
        break;
    }
    free(l);
}

static void run_command(struct infer *i, struct command *l)
{
    switch (l->kind) {
    case MAIL_START:
        sched_watch(i->sched);
        break;
    case MAIL_ADD:
        sched_add(i->sched, l->seq);
        break;
    case MAIL_EMBED: /* infer_embed() refuses */
        break;
    case MAIL_CANCEL:
        sched_cancel(i->sched, l->id);
        break;
    case MAIL_PROBE:
        sched_probe(i->sched);
        break;
    case MAIL_ON_LOST:
        sched_on_lost(i->sched, l->on_lost, l->arg);
        break;
    case MAIL_DRAIN:
        sched_drain(i->sched, l->why);
        break;
    case MAIL_FAIL:
        sched_fail(i->sched, l->why);
        break;
    case MAIL_ABANDON:
        sched_abandon(i->sched, l->why);
        break;
    case MAIL_AUDIT:
        audit_answer(i->sched, l->audit);
        break;
    case MAIL_CHANGE:
        sched_change(i->sched, l->change);
        break;
    case MAIL_STOP:
        sched_stop(i->sched, on_gone, i);
        break;
    }
    free(l);
}

static void on_bell(struct rpc_op *op, bool ok)
{
    struct infer *i = CONTAINER_OF(op, struct infer, bell);
    (void)ok;
    for (struct mail *m = mailbox_take(&i->box), *next; m; m = next) {
        next = m->next;
        (i->embedder ? read_for_texts : run_command)(i, (struct command *)m);
    }
}

static void *run(void *arg)
{
    struct infer *i = arg;
    rpc_loop_run(i->loop);
    return NULL;
}

/* ------------------------------------------------------------------ any thread */
static void put(struct infer *i, struct command *l)
{
    if (mailbox_put(&i->box, &l->mail))
        rpc_post(i->loop, &i->bell);
}

static bool post(struct infer *i, const struct command *l)
{
    struct command *copy = malloc(sizeof(*copy));
    if (!copy)
        return false;
    *copy = *l;
    put(i, copy);
    return true;
}

/* The only event that is not sent on the scheduler thread. */
static void refuse(struct gen_request *r, enum err_kind kind, const char *why)
{
    struct err e = ERR_INIT;
    err_set(&e, kind, "%s", why);
    const struct gen_sink sink = r->sink;
    r->times.queued = r->times.ended = clock_ns();
    sink.event(r, &(struct gen_event){.type = GEN_ERROR, .err = &e});
    if (sink.flush)
        sink.flush(sink.arg);
}

void infer_submit(struct infer *i, struct gen_request *r)
{
    if (atomic_load(&i->stopping)) {
        refuse(r, ERR_OVERLOADED, "The server is shutting down");
        return;
    }
    if (i->embedder) {
        refuse(r, ERR_TASK, "this model generates no text");
        return;
    }
    if (!infer_prepare(r) || !infer_offer(i, r))
        refuse(r, ERR_OVERLOADED, "Model is overloaded");
}

bool infer_prepare(struct gen_request *r)
{
    r->times.queued = clock_ns();
    r->seq = ARENA_NEW(&r->arena, struct infer_seq, 1);
    if (r->seq)
        *r->seq = (struct infer_seq){0};
    return r->seq != NULL;
}

/* 1 + the id of the request that computes the same prompt; ids are per scheduler. */
static uint64_t leader_of(const struct infer *i, const struct gen_request *r)
{
    const struct infer_seq *same = r->same && !r->resume ? r->same->seq : NULL;
    return same && same->at == i ? same->id + 1 : 0;
}

bool infer_offer(struct infer *i, struct gen_request *r)
{
    uint64_t id = atomic_fetch_add(&i->next_id, 1);
    struct seq *q = atomic_load(&i->stopping) || i->embedder ? NULL : seq_new(r, id, i->speculate);
    if (!q)
        return false;
    *r->seq = (struct infer_seq){id, i};
    q->leads = leader_of(i, r);
    if (post(i, &(struct command){.kind = MAIL_ADD, .seq = q}))
        return true;
    r->seq->at = NULL;
    seq_free(q);
    return false;
}

bool infer_offer_texts(struct infer *i, struct embed_job *j)
{
    return !atomic_load(&i->stopping) && post(i, &(struct command){.kind = MAIL_EMBED, .job = j});
}

/* A job that was taken may have ended and been freed already. */
void infer_embed(struct infer *i, struct embed_job *j)
{
    if (i->embedder && infer_offer_texts(i, j))
        return;
    if (i->embedder)
        err_set(&j->err, ERR_OVERLOADED, "Model is overloaded");
    else
        err_set(&j->err, ERR_TASK, "The model does not support Embeddings API");
    j->done(j);
}

void infer_cancel(struct infer *i, struct gen_request *r)
{
    if (r->seq && r->seq->at) /* out of memory for the command: the request runs to its end */
        post(i, &(struct command){.kind = MAIL_CANCEL, .id = r->seq->id});
}

bool infer_healthy(struct infer *i)
{
    int64_t now = clock_ns(), answered = atomic_load(&i->status.answered_ns);
    int64_t asked = atomic_load(&i->asked_ns), last = atomic_load(&i->asked_last_ns);
    int64_t call = atomic_load(&i->status.call_ns);
    bool ok = atomic_load(&i->status.healthy);
    if (asked > answered && now - asked > ANSWER_LATE_NS)
        ok = false; /* the health check is unanswered */
    if (call && now - call > atomic_load(&i->status.stalled_ns))
        ok = false; /* the shards answer, but the model call hangs */
    if ((now - answered > ANSWER_OLD_NS || !ok) && now - last > ASK_AGAIN_NS &&
        atomic_compare_exchange_strong(&i->asked_last_ns, &last, now)) {
        if (asked <= answered)
            atomic_store(&i->asked_ns, now);
        post(i, &(struct command){.kind = MAIL_PROBE});
    }
    return ok;
}

int64_t infer_silence_ms(struct infer *i)
{
    int64_t answered = atomic_load(&i->status.answered_ns), asked = atomic_load(&i->asked_ns);
    return asked > answered ? (clock_ns() - asked) / 1000000 : 0;
}

void infer_abandon(struct infer *i, const char *why)
{
    post(i, &(struct command){.kind = MAIL_ABANDON, .why = why});
}

void infer_on_lost(struct infer *i, void (*fn)(void *arg, const char *why), void *arg)
{
    post(i, &(struct command){.kind = MAIL_ON_LOST, .on_lost = fn, .arg = arg});
}

void infer_drain(struct infer *i, const char *why)
{
    post(i, &(struct command){.kind = MAIL_DRAIN, .why = why});
}

void infer_fail(struct infer *i, const char *why)
{
    post(i, &(struct command){.kind = MAIL_FAIL, .why = why});
}

struct infer_stats infer_stats(struct infer *i)
{
    const int64_t call = atomic_load(&i->status.call_ns);
    const uint32_t running = atomic_load(&i->status.running); /* first: see sched_publish() */
    const uint32_t queued = atomic_load(&i->status.queued);
    return (struct infer_stats){.queued = queued,
                                .running = running,
                                .blocks_total = atomic_load(&i->status.blocks_total),
                                .blocks_used = atomic_load(&i->status.blocks_used),
                                .blocks_cached = atomic_load(&i->status.blocks_cached),
                                .swap_used = atomic_load(&i->status.swap_used),
                                .cells_used = atomic_load(&i->status.cells_used),
                                .call_ns = call ? clock_ns() - call : 0};
}

int infer_audit(struct infer *i, int64_t ms, struct buf *out, bool *balanced, struct err *e)
{
    struct question *q = question_new();
    if (!q)
        return err_nomem(e);
    const bool asked =
        !atomic_load(&i->stopping) && post(i, &(struct command){.kind = MAIL_AUDIT, .audit = q});
    return question_wait(q, asked, ms, out, balanced)
               ? 0
               : err_set(e, ERR_UNHEALTHY, "the scheduler does not answer");
}

struct adapter_shelf *infer_adapters(const struct infer *i)
{
    return i->embedder ? embedder_shelf(i->embedder) : sched_shelf(i->sched);
}

void infer_change(struct infer *i, struct adapter_change *c)
{
    if (!atomic_load(&i->stopping) && post(i, &(struct command){.kind = MAIL_CHANGE, .change = c}))
        return;
    err_set(&c->err, ERR_UNHEALTHY, "the server is shutting down");
    c->done(c);
}

const struct infer_limits *infer_limits(const struct infer *i) { return &i->limits; }

/* ------------------------------------------------------------------ life */
static void settle_limits(struct infer *i, const struct shard_model *m)
{
    struct infer_limits *l = &i->limits;
    *l = (struct infer_limits){.max_input_tokens = m->max_input_tokens,
                               .max_total_tokens = m->max_total_tokens,
                               .max_batch_prefill_tokens = m->max_batch_prefill_tokens,
                               .max_batch_total_tokens = m->max_batch_total_tokens,
                               .vocab_size = m->vocab_size,
                               .vocab_hash = m->vocab_hash,
                               .checkpoint_hash = m->checkpoint_hash,
                               .block_size = m->block_size,
                               .n_shards = shards_count(i->shards),
                               .takes_input_ids = m->takes_input_ids,
                               .takes_bias = m->takes_bias,
                               .takes_reasoning = m->takes_reasoning,
                               .takes_grammars = m->takes_grammars,
                               .takes_images = m->takes_images,
                               .has_encoder = m->has_encoder,
                               .decoder_start = m->decoder_start,
                               .transfers = m->transfers,
                               .transfer_hosts = m->transfer_hosts,
                               .has_windows = m->window_blocks > 0,
                               .sampling_fields = m->sampling_fields};
    memcpy(l->dtype, m->dtype, sizeof(l->dtype));
    memcpy(l->quantize, m->quantize, sizeof(l->quantize));
    memcpy(l->activations, m->activations, sizeof(l->activations));
    memcpy(l->matrices, m->matrices, sizeof(l->matrices));
    memcpy(l->device, m->device, sizeof(l->device));
    memcpy(l->family, m->family, sizeof(l->family));
    memcpy(l->options, m->options, sizeof(l->options));
    memcpy(l->products, m->products, sizeof(l->products));
    memcpy(l->program, m->program, sizeof(l->program));
    l->parameters = m->parameters;
    l->weight_bytes = m->weight_bytes;
    /* Our shards list all adapters; v2 shards have none. */
    const bool texts = m->task != TASK_GENERATE;
    l->lists_adapters = texts || m->takes_input_ids || m->version == 2;
    l->runtime_adapters = texts ? 0 : m->runtime_adapters;
    l->task = m->task;
    l->pairs_as_text = m->pairs_as_text;
    l->embed_width = m->embed_width;
    l->sparse = m->sparse;
    l->first_row = m->first_row;
    l->cosine_scale = m->cosine_scale;
    l->cosine_plus = m->cosine_plus;
    l->cosines_each = m->cosines_each;
    l->hidden_size = m->hidden_size;
    l->labels = m->labels;
    l->n_labels = m->n_labels;
    i->speculate = m->speculate;
}

static int start_texts(struct infer *i, const struct infer_config *c, const struct shard_model *m,
                       struct err *e)
{
    struct embedder_options o = {.shards = i->shards,
                                 .loop = i->loop,
                                 .target = c->shard_target,
                                 .return_ms = c->return_ms,
                                 .model = *m,
                                 .metrics = c->metrics,
                                 .status = &i->status,
                                 .owner = c->owner ? &i->owner : NULL,
                                 .failed = c->failed};
    if (c->draft_target)
        return err_set(e, ERR_VALIDATION,
                       "a draft model is of no use to a model that does not "
                       "generate");
    if (!(i->embedder = embedder_new(&o, e)))
        return -1;
    i->shards = NULL; /* owned by the embedder now */
    return 0;
}

static int start_scheduler(struct infer *i, const struct infer_config *c,
                           const struct shard_model *m, struct err *e)
{
    struct drafter_options draft = {
        .loop = i->loop, .target = c->draft_target, .served = m, .metrics = c->metrics};
    if (c->draft_target && m->state_cells_per_request)
        return err_set(e, ERR_VALIDATION,
                       "draft models are not supported for models with recurrent state");
    if (c->draft_target && !m->speculate)
        return err_set(e, ERR_VALIDATION, "the shards verify no drafts (--speculate)");
    if (c->draft_target && !(i->drafter = drafter_new(&draft, e)))
        return -1;
    struct sched_options o = {.shards = i->shards,
                              .return_ms = c->return_ms,
                              .loop = i->loop,
                              .target = c->shard_target,
                              .model = *m,
                              .max_batch_size = c->max_batch_size,
                              .max_waiting_tokens = c->max_waiting_tokens,
                              .waiting_served_ratio = c->waiting_served_ratio,
                              .target_inter_token_ms = c->target_inter_token_ms,
                              .target_inter_token_factor = c->target_inter_token_factor,
                              .metrics = c->metrics,
                              .drafts = drafter_source(i->drafter),
                              .owner = c->owner ? &i->owner : NULL,
                              .events = c->events,
                              .events_rank = c->events_rank,
                              .check = c->check,
                              .failed = c->failed,
                              .status = &i->status};
    if ((i->sched = sched_new(&o, e))) {
        i->shards = NULL; /* owned by the scheduler now */
        return 0;
    }
    if (i->drafter)
        drafter_halt(i->drafter);
    return -1;
}

static int start(struct infer *i, const struct infer_config *c, struct err *e)
{
    struct shard_model m = {.max_input_tokens = c->max_input_tokens,
                            .max_total_tokens = c->max_total_tokens,
                            .max_batch_prefill_tokens = c->max_batch_prefill_tokens,
                            .max_batch_total_tokens = c->max_batch_total_tokens,
                            .max_batch_size = c->max_batch_size,
                            .wants_labels = true,
                            .wants_windows = true};
    i->shards = shards_connect(i->loop, c->shard_target,
                               c->connect_timeout_ms ? c->connect_timeout_ms : 600000, true, e);
    if (i->shards && c->connected)
        *c->connected = true;
    int rc = i->shards ? shards_warmup(i->shards, &m, e) : -1;
    i->labels = m;
    if (c->owner)
        i->owner = *c->owner;
    if (rc == 0) {
        settle_limits(i, &m);
        rc = (m.task == TASK_GENERATE ? start_scheduler : start_texts)(i, c, &m, e);
    }
    served_adapters_release(m.adapters);
    return rc;
}

static void on_halt(struct rpc_op *op, bool ok)
{
    (void)ok;
    rpc_loop_stop(CONTAINER_OF(op, struct infer, bell)->loop);
}

static void infer_free(struct infer *i)
{
    watchdog_remove(i->watchdog, rpc_loop_busy(i->loop));
    pthread_join(i->thread, NULL);
    sched_free(i->sched);
    embedder_free(i->embedder);
    shard_labels_free(&i->labels);
    drafter_free(i->drafter);
    shards_free(i->shards);
    rpc_loop_free(i->loop);
    free(i);
    rpc_release();
}

struct infer *infer_start(const struct infer_config *c, struct err *e)
{
    struct infer *i = calloc(1, sizeof(*i));
    if (!i)
        return err_nomem(e), NULL;
    grpc_init();
    i->loop = rpc_loop_new();
    if (i->loop) {
        rpc_loop_set_cluster(i->loop, c->cluster);
        rpc_loop_set_session(i->loop, c->session);
    }
    if (!i->loop || pthread_create(&i->thread, NULL, run, i) != 0) {
        err_set(e, ERR_SYSTEM, "the scheduler's thread did not start");
        if (i->loop)
            rpc_loop_free(i->loop);
        free(i);
        grpc_shutdown();
        return NULL;
    }
    if (start(i, c, e) != 0) {
        i->bell = (struct rpc_op){on_halt, "halt"};
        rpc_post(i->loop, &i->bell);
        infer_free(i);
        return NULL;
    }
    i->watchdog = c->watchdog;
    watchdog_add(i->watchdog, "scheduler thread", rpc_loop_busy(i->loop));
    i->bell = (struct rpc_op){on_bell, "mail"};
    post(i, &(struct command){.kind = MAIL_START});
    return i;
}

void infer_stop(struct infer *i)
{
    if (!i)
        return;
    atomic_store(&i->stopping, true);
    if (i->embedder)
        embedder_halt(i->embedder);
    else
        sched_halt(i->sched);
    if (i->drafter)
        drafter_halt(i->drafter);
    while (!post(i, &(struct command){.kind = MAIL_STOP}))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    infer_free(i);
}
