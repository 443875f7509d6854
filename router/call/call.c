/* Life cycle of a call on the loop thread: see call.h. What workers do is in work.c; metrics, log
 * lines and response headers are in accounting.c. */
#include "router/call/call.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "router/call/accounting.h"
#include "router/call/spans.h"
#include "router/call/work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Copies what a worker needs from the exchange. */
static int read_owner(struct call *c, const struct exchange *x)
{
    char digest[EXCHANGE_DIGEST];
    for (int i = 0; i < ROUTE_ARGUMENTS && c->route->arguments[i]; i++) {
        const char *v = exchange_argument(x, c->route->arguments[i]);
        if (v && !(c->arguments[i] = arena_strdup(&c->arena, v, strlen(v))))
            return -1;
    }
    if (!c->edge->store)
        return 0;
    exchange_key_digest(x, digest);
    c->owner = arena_strdup(&c->arena, digest, strlen(digest));
    return c->owner ? 0 : -1;
}

static struct call *call_new(struct edge *g, struct exchange *x)
{
    struct call *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->edge = g;
    c->x = x;
    c->route = exchange_route(x);
    c->received_ns = clock_ns();
    c->tenant = exchange_tenant(x, &c->tenant_named);
    c->local = exchange_local(x);
    c->counts = http_counts(g->http);
    c->key_id = exchange_key_id(x);
    c->created_unix = (int64_t)time(NULL);
    c->body = exchange_take_body(x);
    c->encoding = exchange_encoding(x);
    c->status = 200;
    arena_init(&c->arena, call_memory(c->body.len));
    c->path = arena_strdup(&c->arena, exchange_path(x), strlen(exchange_path(x)));
    c->id = arena_strdup(&c->arena, exchange_id(x), strlen(exchange_id(x)));
    snprintf(c->method, sizeof(c->method), "%s", exchange_method(x));
    snprintf(c->key, sizeof(c->key), "%s", exchange_key(x));
    if (!c->path || !c->id) {
        arena_reset(&c->arena);
        buf_free(&c->body);
        free(c);
        return NULL;
    }
    c->errors = exchange_shape(x)->errors;
    c->shared = exchange_share(x);
    if (read_owner(c, x) != 0) {
        exchange_unshare(c->shared);
        arena_reset(&c->arena);
        buf_free(&c->body);
        free(c);
        return NULL;
    }
    spans_begin(c);
    atomic_fetch_add(&g->live, 1);
    return c;
}

static void call_free(struct call *c)
{
    struct edge *g = c->edge, *home = edge_home(g);
    account_line(c); /* no other thread writes its times any more */
    spans_end(c);
    for (uint32_t i = 0; i < c->n_gen; i++)
        answer_free(&c->gen[i].answer), arena_reset(&c->gen[i].r.arena);
    admission_give(&g->admission, c->key_id, c->permits);
    models_release(g);
    exchange_unshare(c->shared);
    buf_free(&c->out);
    buf_free(&c->body);
    arena_reset(&c->arena);
    free(c);
    atomic_fetch_sub(&home->live, 1);
}

/* Is the result of the call still needed? */
static bool wanted(const struct call *c) { return c->x || c->detached; }

/* Pushing bytes may detect a disconnect and end the exchange inside the call. So a caller that
 * still uses the call pins it first. */
static void pin(struct call *c) { c->pins++; }

static void unpin(struct call *c)
{
    if (--c->pins == 0 && !c->x && !c->busy && c->n_live == 0)
        call_free(c);
}

static void cancel_all(struct call *c)
{
    struct fleet *f = atomic_load(&c->edge->fleet);
    for (uint32_t k = 0; k < c->n_gen; k++)
        if (c->gen[k].live)
            fleet_cancel(f, &c->gen[k].r);
}

/* ---------------------------------------------------------------- answering */

void call_reply(struct call *c)
{
    if (!c->x)
        return;
    struct exchange *x = c->x;
    exchange_reply(x, c->status, c->out.len ? c->type ? c->type : "application/json" : NULL,
                   &c->out);
}

/* Estimated from the time until the waiting requests have been served. */
uint32_t call_retry_after(struct call *c)
{
    if (!c->x)
        return 0;
    struct fleet *f = atomic_load(&c->edge->fleet);
    uint32_t ahead = f ? fleet_stats(f).queued + 1 : 0;
    uint32_t wait = f ? drain_wait(&c->edge->drain, clock_ns(), ahead) : (uint32_t)DRAIN_UNKNOWN_S;
    char s[16];
    snprintf(s, sizeof(s), "%u", wait);
    exchange_add(c->x, "retry-after", s);
    return wait;
}

static void note_error(struct call *c, const struct err *e)
{
    c->error = arena_strdup(&c->arena, e->msg, strlen(e->msg));
    if (!c->error)
        c->error = "out of memory";
    c->ours = error_is_ours(e);
}

void call_reply_error(struct call *c, const struct err *e)
{
    buf_reset(&c->out);
    note_error(c, e);
    c->status = error_status(c->errors, e->kind);
    const bool again = c->status == 429 || c->status == 503;
    const uint32_t wait_s = again ? call_retry_after(c) : 0;
    c->type = error_body(&c->out, c->errors, e, c->x ? exchange_id(c->x) : "", wait_s);
    if (c->lane && c->out.len) { /* behind the last member */
        c->out.len--;
        buf_str(&c->out, ",\"stream_id\":");
        buf_json_str(&c->out, c->lane, strlen(c->lane));
        buf_ch(&c->out, '}');
    }
    call_reply(c);
}

static void push_out(struct call *c)
{
    if (c->x && c->stream && c->out.len && !c->out.oom) {
        exchange_push(c->x, c->out.p, c->out.len);
        buf_reset(&c->out);
    } else if (c->stream && !c->x) {
        buf_reset(&c->out);
    }
}

static void open_stream(struct call *c)
{
    c->streaming = true;
    if (!c->x)
        return;
    account_stream_headers(c);
    exchange_stream(c->x, c->format->stream_type, c->body.len);
}

/* Some errors occur before a generation exists, and so before the protocol's stream starts. TGI
 * still reports most of them as events. */
static bool as_event(const struct call *c, const struct err *e)
{
    if (c->errors != ERRORS_TGI)
        return c->streaming;
    return c->stream && (c->streaming || (e->kind != ERR_TEMPLATE && e->kind != ERR_TOOL &&
                                          e->kind != ERR_UNHEALTHY && *err_wire(e->kind)));
}

static void fail(struct call *c, const struct err *e)
{
    c->finished = true;
    account_failed(c, e);
    if (c->detached && c->format->gone)
        c->format->gone(c, e);
    if (c->detached && !c->stream) {
        note_error(c, e); /* the client already has its answer */
    } else if (as_event(c, e)) {
        note_error(c, e);
        if (!c->streaming)
            open_stream(c);
        buf_reset(&c->out);
        if (c->format->error)
            c->format->error(c, e);
        else
            error_event(&c->out, c->errors, e, c->x ? exchange_id(c->x) : "");
        push_out(c);
        if (c->x)
            exchange_end(c->x);
    } else {
        call_reply_error(c, e);
    }
    cancel_all(c);
}

/* A part of the answer is missing. */
static void fail_for_memory(struct call *c)
{
    struct err e = ERR_INIT;
    err_nomem(&e);
    fail(c, &e);
}

static void finish(struct call *c)
{
    bool lost = false;
    c->finished = true;
    if (c->format->finish)
        c->format->finish(c);
    for (uint32_t i = 0; i < c->n_gen; i++)
        lost |= c->gen[i].answer.text.oom;
    if (lost || c->out.oom) {
        fail_for_memory(c);
        return;
    }
    account_done(c);
    drain_ended(&c->edge->drain, clock_ns(), c->n_gen);
    if (c->stream) {
        push_out(c);
        if (c->x)
            exchange_end(c->x);
    } else if (!c->detached) {
        call_reply(c);
    }
}

void call_cancel(struct call *c)
{
    pin(c);
    c->finished = true;
    cancel_all(c);
    if (c->x && c->streaming)
        exchange_end(c->x);
    unpin(c);
}

void call_again(struct call *c)
{
    c->busy = true;
    workers_submit(edge_home(c->edge)->workers, &c->job);
}

/* The loop owns c again. */
void call_resume(struct call *c)
{
    struct edge *home = edge_home(c->edge);
    if (mailbox_put(&home->done, &c->mail))
        http_wake(home->http);
}

/* ---------------------------------------------------------------- events of the scheduler */

static void on_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    answer_token(&g->answer, ev);
    if (c->format->token)
        c->format->token(c, g, ev);
    if (!g->enough || ev->end)
        return;
    g->answer.ended = true;
    g->answer.finish = FINISH_STOP;
    g->answer.generated_tokens = g->answer.n_tokens;
    fleet_cancel(atomic_load(&c->edge->fleet), &g->r);
}

static void on_event(struct call *c, struct generation *g, const struct gen_event *ev)
{
    if (g->enough) /* pending events are dropped, including the one of the cancellation */
        ;
    else if (ev->type == GEN_ERROR) {
        fail(c, ev->err);
        return;
    } else if (ev->type == GEN_TOKEN) {
        on_token(c, g, ev);
    } else if (ev->type == GEN_PROGRESS) {
        if (c->format->progress)
            c->format->progress(c, g, ev);
    } else if (c->format->prefill) {
        c->format->prefill(c, g, ev);
    }
    if (c->out.oom) {
        fail_for_memory(c);
        return;
    }
    push_out(c);
    if (wanted(c) && c->n_live == 0)
        finish(c);
}

static void submit_next(struct call *c)
{
    struct generation *g = &c->gen[c->n_started++];
    g->live = true;
    c->n_live++;
    fleet_submit(atomic_load(&c->edge->fleet), &g->r);
}

static void on_note(struct note *n)
{
    struct generation *g = n->request->owner;
    struct call *c = g->call;
    pin(c);
    if (n->event.type == GEN_ERROR || n->event.end) {
        g->live = false;
        c->n_live--;
        bool failed = n->event.type == GEN_ERROR && !g->enough;
        if (wanted(c) && !c->finished && !failed && c->n_started < c->n_gen)
            submit_next(c);
    }
    if (wanted(c) && !c->finished)
        on_event(c, g, &n->event);
    if (n != &g->last)
        free(n);
    unpin(c);
}

/* ---------------------------------------------------------------- after a worker */

static void start(struct call *c)
{
    if (c->stream)
        open_stream(c);
    else if (c->detached)
        call_reply(c);
    if (!wanted(c)) /* it did not start */
        return;
    for (uint32_t i = 0; i < c->permits && i < c->n_gen; i++)
        submit_next(c);
}

static void finish_texts(struct call *c)
{
    c->finished = true;
    account_texts(c);
    drain_ended(&c->edge->drain, clock_ns(), c->permits);
    call_reply(c);
}

static void on_worked(struct call *c)
{
    pin(c);
    c->busy = false;
    account_warnings(c);
    const bool goes_on = wanted(c) || c->route->carries_on;
    if (!goes_on || (!c->failed && c->on_loop && !c->on_loop(c)) || !wanted(c))
        ;
    else if (c->failed)
        fail(c, &c->err);
    else if (c->n_gen)
        start(c);
    else if (c->texts)
        finish_texts(c);
    else
        call_reply(c);
    unpin(c);
}

/* ---------------------------------------------------------------- the loop's callbacks */

/* The port opens before the model is loaded. Until then only probes and metrics are served. */
static bool still_loading(struct call *c)
{
    struct err e;
    if (c->route->probe || atomic_load(&edge_home(c->edge)->fleet))
        return false;
    err_set(&e, ERR_UNHEALTHY, "the model is being loaded");
    call_reply_error(c, &e);
    return true;
}

static void on_request(void *arg, struct exchange *x)
{
    struct edge *g = arg;
    struct call *c = call_new(g, x);
    exchange_set_user(x, c);
    if (!c) {
        exchange_reply(x, 500, NULL, NULL);
        return;
    }
    if (still_loading(c))
        return;
    if (c->route->reply) {
        c->route->reply(c);
        return;
    }
    c->busy = true;
    c->job.run = call_work;
    workers_submit(g->workers, &c->job);
}

static void on_aside(void *arg, const struct exchange *x) { account_aside(arg, x); }

static void on_over(void *arg, struct exchange *x, bool sent)
{
    struct call *c = exchange_user(x);
    if (!c) {
        on_aside(arg, x);
        return;
    }
    pin(c);
    c->over_ns = clock_ns();
    c->dropped = !sent;
    c->x = NULL;
    atomic_store(&c->cancelled, true);
    if (!c->finished) {
        if (!c->busy && !c->detached) /* otherwise none were submitted */
            cancel_all(c);
        if (!sent && !c->detached)
            account_dropped(arg, c);
    }
    unpin(c);
}

static void on_wake(void *arg)
{
    struct edge *g = arg;
    for (struct mail *m = mailbox_take(&g->done), *next; m; m = next) {
        next = m->next;
        on_worked((struct call *)((char *)m - offsetof(struct call, mail)));
    }
    for (struct mail *m = mailbox_take(&g->events), *next; m; m = next) {
        next = m->next;
        on_note((struct note *)((char *)m - offsetof(struct note, mail)));
    }
}

const struct http_events call_events = {
    .request = on_request, .over = on_over, .aside = on_aside, .wake = on_wake};
