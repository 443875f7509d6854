/* Messages that cannot be served at once.
 *
 * A message whose model must be loaded waits for it; later messages overtake it. A message with
 * text waits for a worker to tokenize it, and later messages wait too, because they may use the
 * buffer that it names. */
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct deferred {
    struct deferred *next;
    size_t n;
    char text[];
};

/* Takes ownership of the arena. NULL: an error was sent to the client. */
static struct preparation *preparation_new(struct peer *p, struct edge *g, struct lmtp_message *m,
                                           struct arena *a)
{
    struct preparation *q = calloc(1, sizeof(*q));
    if (!q) {
        struct err e = ERR_INIT;
        err_nomem(&e);
        stream_refuse(p, m, &e);
        arena_reset(a);
        return NULL;
    }
    q->lmtp = p->lmtp;
    q->edge = g;
    q->peer = p;
    q->arena = *a;
    q->m = *m;
    q->since_ms = clock_ms();
    atomic_fetch_add(&p->lmtp->edge->live, 1); /* a shutdown waits for it */
    return q;
}

/* Frees it; the hold on the model was passed on, or is released. */
static void preparation_free(struct preparation *q)
{
    if (q->edge)
        models_release(q->edge);
    arena_reset(&q->arena);
    q->lmtp->n_ended++;
    free(q);
}

static void return_to_loop(struct preparation *q)
{
    if (mailbox_put(&q->lmtp->prepared, &q->mail))
        lmtp_wake(q->lmtp);
}

/* ---------------------------------------------------------------- a model */

static void on_model(struct models_wait *w, struct edge *g, const struct err *why)
{
    struct preparation *q = (struct preparation *)((char *)w - offsetof(struct preparation, wait));
    q->edge = g;
    if (!g)
        q->why = *why;
    return_to_loop(q);
}

struct preparation *prepare_find(const struct peer *p, const struct lmtp_id *id)
{
    struct preparation *q = p->loading;
    while (q && strcmp(q->m.id.text, id->text) != 0)
        q = q->next;
    return q;
}

static void unlist(struct preparation *q)
{
    assert(q->peer); /* listed ones have a peer */
    struct preparation **at = &q->peer->loading;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    q->peer->n_loading--;
    peer_changed(q->peer); /* it may read again */
    q->peer = NULL;        /* when it returns, the peer is gone */
}

void prepare_fail(struct preparation *q, const char *why)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_UNHEALTHY, "%s", why);
    stream_refuse(q->peer, &q->m, &e);
    unlist(q);
}

void prepare_model(struct peer *p, struct lmtp_message *m, struct arena *a)
{
    struct edge *g = NULL;
    struct preparation *q;
    if (stream_find(p, &m->id) || prepare_find(p, &m->id)) {
        err_set(&m->err, ERR_VALIDATION, "this `stream_id` is in use");
        stream_refuse(p, m, &m->err);
        arena_reset(a);
        return;
    }
    if (!(q = preparation_new(p, NULL, m, a)))
        return;
    q->wait.ready = on_model;
    q->loading = true;
    int rc = models_hold(p->lmtp->edge, m->model, &q->wait, &g, &m->err);
    if (rc == 0) {
        q->next = p->loading;
        p->loading = q;
        p->n_loading++;
        watch_from(p->lmtp, m->status ? q->since_ms : m->deadline_ms);
        return;
    }
    *a = q->arena;
    q->arena = (struct arena){0};
    preparation_free(q);
    if (rc < 0)
        stream_refuse(p, m, &m->err), arena_reset(a);
    else
        lmtp_settled(p, g, m, a);
}

static void loaded(struct preparation *q)
{
    struct peer *p = q->peer;
    struct edge *g = q->edge;
    if (p)
        unlist(q);
    if (p && g) {
        q->edge = NULL;
        lmtp_settled(p, g, &q->m, &q->arena);
        q->arena = (struct arena){0};
    } else if (p) {
        stream_refuse(p, &q->m, &q->why);
    }
    preparation_free(q);
}

/* ---------------------------------------------------------------- text */

static int encode_all(struct preparation *q, struct tok_scratch **scratch, struct err *e)
{
    struct validator v = edge_validator(q->edge);
    struct lmtp_message *m = &q->m;
    /* A continuation of a buffer gets no BOS token. */
    if (m->text && encode(&v, m->text, m->n_text, m->buffer ? 0 : TOK_ADD_SPECIAL, 0, scratch,
                          &q->arena, &m->prompt, &m->n_prompt, e) != 0)
        return -1;
    if (m->scored_text && encode(&v, m->scored_text, m->n_scored_text, 0, 0, scratch, &q->arena,
                                 &m->scored, &m->n_scored, e) != 0)
        return -1;
    return 0;
}

static void run(struct job *j, struct tok_scratch **scratch)
{
    struct preparation *q = (struct preparation *)j;
    if (encode_all(q, scratch, &q->m.err) != 0 && q->m.err.kind == ERR_NONE)
        err_nomem(&q->m.err);
    return_to_loop(q);
}

void prepare_text(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a)
{
    struct preparation *q = preparation_new(p, g, m, a);
    if (!q) {
        models_release(g);
        return;
    }
    q->job.run = run;
    p->preparing = q;
    workers_submit(p->lmtp->edge->workers, &q->job);
}

void prepare_defer(struct peer *p, const char *text, size_t n)
{
    struct deferred *d = malloc(sizeof(*d) + n);
    if (!d) {
        peer_message(p, NULL, "error", "out of memory");
        return;
    }
    d->next = NULL;
    d->n = n;
    memcpy(d->text, text, n);
    if (!p->waiting)
        p->waiting_end = &p->waiting;
    *p->waiting_end = d;
    p->waiting_end = &d->next;
}

static struct deferred *next_deferred(struct peer *p)
{
    struct deferred *d = p->waiting;
    if (d)
        p->waiting = d->next;
    return d;
}

static void serve_deferred(struct peer *p)
{
    struct deferred *d;
    while (!p->preparing && (d = next_deferred(p))) {
        lmtp_serve(p, d->text, d->n);
        free(d);
    }
}

static void encoded(struct preparation *q)
{
    struct peer *p = q->peer;
    struct edge *g = q->edge;
    if (p) {
        p->preparing = NULL;
        q->edge = NULL;
        lmtp_dispatch(p, g, &q->m, &q->arena);
        q->arena = (struct arena){0};
        serve_deferred(p);
        peer_changed(p); /* the peer reads again */
    }
    preparation_free(q);
}

/* ---------------------------------------------------------------- both */

void prepare_done(struct lmtp *l)
{
    for (struct mail *m = mailbox_take(&l->prepared), *next; m; m = next) {
        struct preparation *q =
            (struct preparation *)((char *)m - offsetof(struct preparation, mail));
        next = m->next;
        if (q->loading)
            loaded(q);
        else
            encoded(q);
    }
}

static void abandon_deferred(struct peer *p, const char *why)
{
    struct err e = ERR_INIT;
    if (why)
        err_set(&e, ERR_UNHEALTHY, "%s", why);
    for (struct deferred *d; (d = next_deferred(p)); free(d)) {
        struct lmtp_message m;
        struct arena a;
        if (!why)
            continue;
        arena_init(&a, LMTP_ARENA(d->n));
        lmtp_parse(d->text, d->n, &a, &m);
        stream_refuse(p, &m, &e);
        arena_reset(&a);
    }
}

void prepare_abandon(struct peer *p, const char *why)
{
    struct preparation *q = p->preparing;
    struct err e = ERR_INIT;
    if (why)
        err_set(&e, ERR_UNHEALTHY, "%s", why);
    while (p->loading && why)
        prepare_fail(p->loading, why);
    while (p->loading)
        unlist(p->loading);
    if (q && why)
        stream_refuse(p, &q->m, &e);
    if (q)
        q->peer = NULL;
    p->preparing = NULL;
    abandon_deferred(p, why);
}
