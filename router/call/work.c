/* A call on a worker thread: parsing, validation, the answer to texts. */
#include "router/call/work.h"
#include "common/hash.h"
#include "router/body/body.h"
#include "router/call/embed.h"
#include "router/http/encoding.h"
#include <stdlib.h>
#include <string.h>

enum { SCHEDULER_ARENA = 64 << 10, CALL_AT_ONCE = 8 };

/* ---------------------------------------------------------------- scheduler thread: events */

static void event(struct gen_request *r, const struct gen_event *ev)
{
    struct generation *g = r->owner;
    struct edge *edge = r->sink.arg;
    bool last = ev->type == GEN_ERROR || ev->end;
    struct note *n = g->lost ? NULL : note_copy(r, ev);
    if (!n) {
        g->lost = true;
        if (!last)
            return;
        err_nomem(&g->last_err);
        n = &g->last;
        *n = (struct note){.request = r, .event = {.type = GEN_ERROR, .err = &g->last_err}};
    }
    mailbox_put(&edge_home(edge)->events, &n->mail);
}

static void flush(void *arg) { http_wake(((struct edge *)arg)->http); }

/* ---------------------------------------------------------------- generations */

/* If all users share one key, the client-supplied user separates them. */
static uint64_t tenant_of(const struct call *c, const struct ask *q)
{
    return q->user && !c->tenant_named && c->edge->has_keys
               ? hash_bytes(c->tenant, q->user, strlen(q->user))
               : c->tenant;
}

/* Most generations of a call that are live at a time. The rest of a long list follows as these end.
 * So it leaves capacity to others, and needs no more permits than exist. */
static uint32_t window(const struct call *c, uint32_t n)
{
    uint32_t half = c->edge->config->max_concurrent_requests / 2;
    uint32_t most = half > CALL_AT_ONCE ? half : CALL_AT_ONCE;
    return n < most ? n : most;
}

static void init_generation(struct call *c, struct generation *g, uint32_t index)
{
    g->call = c;
    g->index = index;
    arena_init(&g->r.arena, SCHEDULER_ARENA);
    g->r.owner = g;
    g->r.sink = (struct gen_sink){event, flush, c->edge};
    g->r.times.received = c->received_ns;
    if (c->trace.sampled)
        g->r.trace = trace_child(&c->trace);
}

/* -1: the served model does not generate. */
static int generates(const struct call *c, struct err *e)
{
    const enum model_task task = edge_limits(c->edge)->task;
    if (task <= TASK_GENERATE)
        return 0;
    return err_set(e, ERR_TASK, "The model does not generate text: it is served for `%s`",
                   model_task_name(task));
}

int call_generate(struct call *c, const struct ask *asks, uint32_t n_asks, uint32_t each,
                  struct err *e)
{
    const char *closed = edge_closed(c->edge);
    struct validator v = edge_validator(c->edge);
    uint32_t n = n_asks * each;
    if (closed)
        return err_set(e, ERR_UNHEALTHY, "%s", closed);
    if (generates(c, e))
        return -1;
    c->prompt_chars = 0;
    c->user = asks[0].user;
    for (uint32_t i = 0; i < n_asks; i++)
        c->prompt_chars += asks[i].n_chars;
    if (!(c->permits = admission_take(&c->edge->admission, c->key_id, window(c, n))))
        return admission_refuse(c->key_id, e);
    if (!(c->gen = ARENA_NEW(&c->arena, struct generation, n)))
        return err_nomem(e);
    for (uint32_t i = 0; i < n_asks; i++) {
        struct generation *first = &c->gen[(size_t)i * each];
        if (validate(&v, &asks[i], c->scratch, &c->arena, &first->r, e) != 0)
            return -1;
        v.like = &asks[i];
        v.like_made = &first->r;
        first->r.tenant = tenant_of(c, &asks[i]);
        init_generation(c, first, i * each);
        for (uint32_t k = 1; k < each; k++) {
            first[k].r = first->r;
            first[k].r.same = &first->r;
            first[k].r.params.seed = asks[i].seed.set ? asks[i].seed.v + k : seed_draw();
            init_generation(c, &first[k], i * each + k);
        }
    }
    c->n_gen = n;
    return 0;
}

/* ---------------------------------------------------------------- the work */

static void on_model(struct models_wait *w, struct edge *g, const struct err *why)
{
    struct call *c = (struct call *)((char *)w - offsetof(struct call, wait));
    struct edge *home = edge_home(c->edge);
    if (g)
        c->edge = g;
    else
        c->err = *why;
    workers_submit(home->workers, &c->job);
}

/* Finds the model the request names. False: it must be loaded, and another component owns the call
 * now. */
static bool settle(struct call *c)
{
    struct edge *home = c->edge, *g = home;
    if (c->settled || (!home->models && !edge_limits(home)->runtime_adapters))
        return true;
    const char *name =
        c->route->model ? c->route->model(c) : body_model(c->body.p, c->body.len, &c->arena);
    c->wait.ready = on_model;
    c->settled = true;
    int rc = models_hold(home, name, &c->wait, &g, &c->err);
    if (rc == 1)
        c->edge = g;
    return rc != 0;
}

/* Writes the answer from the values, or the error. */
static void render_texts(struct call *c)
{
    struct embed_job *j = &c->texts->job;
    if (j->err.kind != ERR_NONE)
        c->err = j->err;
    c->failed = j->err.kind != ERR_NONE ||
                (!atomic_load(&c->cancelled) && c->texts->render(c, &c->err) != 0);
    free(j->values);
    j->values = NULL;
}

static void run_texts(struct job *j, struct tok_scratch **scratch)
{
    struct call *c = (struct call *)((char *)j - offsetof(struct call, job));
    (void)scratch;
    render_texts(c);
    call_resume(c);
}

size_t call_memory(size_t n) { return ((size_t)64 << 20) + 16 * n; }

/* The body is as long as one that is not compressed may be. */
static int unpack(struct call *c)
{
    struct buf plain = BUF_INIT;
    if (!c->encoding)
        return 0;
    const int rc = encoding_unpack(c->encoding, c->body.p, c->body.len,
                                   c->edge->config->payload_limit, &plain, &c->err);
    c->encoding = NULL;
    buf_free(&c->body);
    c->body = plain;
    c->arena.limit = call_memory(c->body.len);
    return rc;
}

void call_work(struct job *j, struct tok_scratch **scratch)
{
    struct call *c = (struct call *)((char *)j - offsetof(struct call, job));
    bool there = !atomic_load(&c->cancelled) || c->route->carries_on;
    if (there && unpack(c) == 0 && !settle(c))
        return;
    c->scratch = scratch;
    if (there && c->err.kind == ERR_NONE) {
        const int rc = c->route->work(c, &c->err);
        if (rc == CALL_LATER)
            return;
        c->failed = rc != 0;
    } else if (there) {
        c->failed = true;
    }
    if (c->failed && (c->err.kind == ERR_TEMPLATE || c->err.kind == ERR_TOOL))
        generates(c, &c->err); /* a better message than that the chat template is missing */
    c->scratch = NULL;
    if (there && !c->failed && c->texts) {
        c->job.run = run_texts;
        call_texts_send(c);
        return;
    }
    call_resume(c);
}
