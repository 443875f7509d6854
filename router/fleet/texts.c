/* Texts of a model that embeds. Each embedder has a queue of its own, so a request is sent at once,
 * to the replica that fleet_pick() chooses by its tokens in progress. It waits here only while no
 * replica answers. A lost replica returns what it had, without the texts whose values came. */
#include "router/embed/embedder.h"
#include "router/fleet/impl.h"
#include "router/metrics.h"
#include <stdlib.h>

/* The texts of one request, from fleet_embed() until done(). */
struct fleet_texts {
    struct embed_job *j;
    void (*done)(struct embed_job *j); /* the creator's */
    struct replica *at;                /* NULL: it waits in fleet.texts */
    uint64_t order;
    uint32_t tokens;
    struct fleet_texts *next;
};

/* ---------------------------------------------------------------- accounting */

static void leave(struct fleet_texts *t)
{
    struct replica *p = t->at;
    p->n_running--;
    p->running -= t->tokens;
    t->at = NULL;
    if (!p->wanted)
        pthread_cond_signal(&p->turn);
}

static void wait_here(struct fleet *f, struct fleet_texts *t)
{
    struct fleet_texts **at = &f->texts;
    while (*at && (*at)->order < t->order)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    f->n_texts++;
}

static struct fleet_texts *take_first(struct fleet *f)
{
    struct fleet_texts *t = f->texts;
    f->texts = t->next;
    f->n_texts--;
    return t;
}

static struct fleet_texts *end(struct fleet_texts *t, enum err_kind kind, const char *why,
                               struct fleet_texts *list)
{
    err_set(&t->j->err, kind, "%s", why);
    t->next = list;
    return t;
}

static void finish(struct fleet_texts *t)
{
    struct embed_job *j = t->j;
    j->done = t->done;
    j->entry = NULL;
    free(t);
    j->done(j);
}

void fleet_settle_texts(struct fleet_texts *ended)
{
    for (struct fleet_texts *t = ended, *next; t; t = next) {
        next = t->next;
        finish(t);
    }
}

struct fleet_texts *fleet_fail_texts(struct fleet *f, const char *why)
{
    struct fleet_texts *list = NULL;
    while (f->texts) {
        list = end(take_first(f), ERR_GENERATION, why, list);
        if (f->c.infer.failed)
            atomic_fetch_add(f->c.infer.failed, 1);
    }
    return list;
}

/* ---------------------------------------------------------------- dispatch */

/* Also requests the health of replicas that do not answer. */
static struct replica *pick(struct fleet *f, const struct fleet_texts *t)
{
    struct pick_candidate c[REPLICAS_MAX];
    for (uint32_t i = 0; i < f->n; i++) {
        const struct replica *p = f->v[i];
        c[i] = (struct pick_candidate){.room = replica_ready(p) && infer_healthy(p->infer) &&
                                               replica_serves(p, t->j->texts[0].adapter),
                                       .has_adapter = true,
                                       .running = p->running,
                                       .computed = p->computed};
    }
    const int at = fleet_pick(f->c.policy, c, f->n, t->tokens, f->turn);
    if (at < 0)
        return NULL;
    f->turn = (uint32_t)at + 1;
    return f->v[at];
}

/* It may end on the replica's thread as soon as it is offered, so it is counted before. False: out
 * of memory. */
static bool bind(struct fleet_texts *t, struct replica *p)
{
    t->at = p;
    p->n_running++;
    p->running += t->tokens;
    if (!infer_offer_texts(p->infer, t->j)) {
        leave(t);
        return false;
    }
    p->computed += t->tokens;
    p->n_sent++;
    return true;
}

struct fleet_texts *fleet_dispatch_texts(struct fleet *f)
{
    struct fleet_texts *ended = NULL;
    struct replica *to;
    while (f->texts && !f->stopping) {
        if (atomic_load(f->texts->j->cancelled))
            ended = end(take_first(f), ERR_INCOMPLETE, "the client has gone", ended);
        else if ((to = pick(f, f->texts)) && bind(f->texts, to))
            take_first(f);
        else
            break;
    }
    fleet_publish_queue(f);
    return ended;
}

/* ---------------------------------------------------------------- a request */

/* Replica's scheduler thread. */
static void on_done(struct embed_job *j)
{
    struct fleet_texts *t = j->entry;
    struct fleet *f = t->at->fleet;
    pthread_mutex_lock(&f->lock);
    leave(t);
    pthread_mutex_unlock(&f->lock);
    finish(t);
}

static struct fleet_texts *texts_new(struct embed_job *j)
{
    struct fleet_texts *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    *t = (struct fleet_texts){.j = j, .done = j->done};
    for (uint32_t i = 0; i < j->n; i++)
        t->tokens += j->texts[i].n;
    return t;
}

static bool enter(struct fleet *f, struct fleet_texts *t)
{
    if (!t || f->stopping || f->lost)
        return false;
    t->order = f->order++;
    t->j->entry = t;
    t->j->done = on_done;
    wait_here(f, t);
    return true;
}

void fleet_embed(struct fleet *f, struct embed_job *j)
{
    if (f->only) {
        infer_embed(f->only, j);
        return;
    }
    const bool embeds = f->limits.task > TASK_GENERATE;
    struct fleet_texts *t = embeds ? texts_new(j) : NULL, *ended = NULL;
    pthread_mutex_lock(&f->lock);
    const bool entered = enter(f, t);
    if (entered)
        ended = fleet_dispatch_texts(f);
    pthread_mutex_unlock(&f->lock);
    fleet_settle_texts(ended);
    if (entered)
        return;
    free(t);
    if (!embeds)
        err_set(&j->err, ERR_TASK, "The model does not support Embeddings API");
    else
        err_set(&j->err, ERR_OVERLOADED, "Model is overloaded");
    j->done(j);
}

void replica_hand_over_texts(void *arg, struct embed_job *j)
{
    struct replica *p = arg;
    struct fleet *f = p->fleet;
    struct fleet_texts *t = j->entry, *ended = NULL;
    pthread_mutex_lock(&f->lock);
    leave(t);
    if (f->stopping || f->lost) {
        ended = end(t, ERR_GENERATION, "Request failed: a shard was lost", NULL);
    } else {
        wait_here(f, t);
        if (f->c.infer.metrics)
            metrics_add(f->c.infer.metrics, M_HANDOVERS, NULL, 1);
        ended = fleet_dispatch_texts(f);
    }
    pthread_mutex_unlock(&f->lock);
    fleet_settle_texts(ended);
}
