#include "router/call/accounting.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "router/body/body.h"
#include "router/call/embed.h"
#include "router/http/access.h"
#include "router/http/traffic.h"
#include "router/metrics.h"
#include <stdio.h>
#include <string.h>

struct spent { /* nanoseconds */
    int64_t total, validation, queue, inference, per_token;
};

static int64_t since(int64_t from, int64_t to) { return from && to > from ? to - from : 0; }

static struct spent spent_on(const struct gen_request *r, uint32_t generated)
{
    const struct gen_times *t = &r->times;
    int64_t end = t->ended ? t->ended : clock_ns();
    struct spent s = {
        .total = since(t->received, end),
        .validation = since(t->received, t->queued),
        .queue = since(t->queued, t->batched),
        .inference = since(t->batched, end),
    };
    s.per_token = generated ? s.inference / generated : 0;
    return s;
}

static void observe(struct metrics *m, const struct gen_request *r, uint32_t generated,
                    enum gen_finish finish)
{
    struct spent s = spent_on(r, generated);
    metrics_add(m, M_FINISHED, finish == FINISH_LENGTH ? "length" : "stop", 1);
    metrics_observe(m, M_REQUEST_DURATION, NULL, (double)s.total * 1e-9);
    metrics_observe(m, M_VALIDATION_DURATION, NULL, (double)s.validation * 1e-9);
    metrics_observe(m, M_QUEUE_DURATION, NULL, (double)s.queue * 1e-9);
    metrics_observe(m, M_INFERENCE_DURATION, NULL, (double)s.inference * 1e-9);
    if (r->times.first) {
        metrics_observe(m, M_FIRST_TOKEN_DURATION, NULL,
                        (double)since(r->times.received, r->times.first) * 1e-9);
        metrics_observe(m, M_PREFILL_DURATION, NULL,
                        (double)since(r->times.batched, r->times.first) * 1e-9);
        metrics_observe(m, M_DECODE_DURATION, NULL,
                        (double)since(r->times.first, r->times.ended) * 1e-9);
    }
    metrics_observe(m, M_TOKEN_DURATION, NULL, (double)s.per_token * 1e-9);
    metrics_observe(m, M_GENERATED_TOKENS, NULL, generated);
    metrics_observe(m, M_INPUT_LENGTH, NULL, r->n_input);
    metrics_observe(m, M_MAX_NEW_TOKENS, NULL, r->params.max_new_tokens);
}

void account_done(struct call *c)
{
    struct metrics *m = c->edge->metrics;
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_SUCCESS, NULL, 1);
    for (uint32_t i = 0; i < c->n_gen; i++)
        observe(m, &c->gen[i].r, c->gen[i].answer.generated_tokens, c->gen[i].answer.finish);
}

void account_texts(struct call *c)
{
    struct metrics *m = c->edge->metrics;
    const struct embed_job *j = &c->texts->job;
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_SUCCESS, NULL, 1);
    metrics_observe(m, M_REQUEST_DURATION, NULL, (double)since(c->received_ns, clock_ns()) * 1e-9);
    metrics_observe(m, M_VALIDATION_DURATION, NULL,
                    (double)since(c->received_ns, j->queued_ns) * 1e-9);
    metrics_observe(m, M_QUEUE_DURATION, NULL, (double)since(j->queued_ns, j->begun_ns) * 1e-9);
    metrics_observe(m, M_INFERENCE_DURATION, NULL, (double)since(j->begun_ns, j->ended_ns) * 1e-9);
    metrics_add(m, M_FINISHED, "stop", j->n);
    for (uint32_t i = 0; i < j->n; i++) {
        metrics_observe(m, M_INPUT_LENGTH, NULL, j->texts[i].n);
        metrics_add(m, M_PROMPT_TOKENS, NULL, j->texts[i].n);
        metrics_add(m, M_PROMPT_SOURCES, "local_compute", j->texts[i].n);
    }
}

static const char *label(enum err_kind k)
{
    switch (k) {
    case ERR_OVERLOADED:
    case ERR_KEY_LIMIT:
        return "overloaded";
    case ERR_GENERATION:
        return "generation";
    case ERR_TEMPLATE:
        return "template";
    case ERR_INCOMPLETE:
    case ERR_INCOMPLETE_STREAM:
    case ERR_SYSTEM:
        return "incomplete";
    case ERR_UNHEALTHY:
        return "unhealthy";
    default:
        return "validation";
    }
}

static void failed(struct metrics *m, const char *why)
{
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_FAILURE, why, 1);
}

void account_failed(struct call *c, const struct err *e)
{
    failed(c->edge->metrics, label(e->kind));
    if (error_is_ours(e))
        metrics_add(c->edge->metrics, M_FINISHED, "error", c->n_gen);
}

void account_dropped(const struct edge *home, const struct call *c)
{
    const uint32_t n = c->busy ? 0 : c->n_gen;
    if (c->busy || n) /* the answer was computed but not fully sent */
        failed(home->metrics, "dropped");
    metrics_add(home->metrics, M_FINISHED, "abort", n);
}

/* ---------------------------------------------------------------- lines */

static void set_seed(struct access_work *w, const struct gen_request *r, char text[24])
{
    if (!r->params.do_sample)
        return;
    snprintf(text, 24, "%llu", (unsigned long long)r->params.seed);
    w->seed = text; /* as text, because log collectors parse numbers as doubles */
}

int account_status(const struct call *c)
{
    return c->dropped && !c->error && !c->streaming ? 499 : c->status;
}

void account_line(const struct call *c)
{
    struct access a = {.end = c->error     ? ACCESS_FAILED
                              : c->dropped ? ACCESS_DROPPED
                                           : ACCESS_SUCCESS,
                       .ours = c->ours,
                       .quiet = c->route->probe,
                       .status = account_status(c),
                       .id = c->id,
                       .method = c->method,
                       .path = c->path,
                       .model = c->edge->model_id,
                       .key = c->key,
                       .user = c->user,
                       .error = c->error,
                       .total = since(c->received_ns, c->over_ns ? c->over_ns : clock_ns())};
    char seed[24];
    for (uint32_t i = 0; i < c->n_gen; i++) {
        const struct answer *n = &c->gen[i].answer;
        access_add(&a.work, &c->gen[i].r, n->ended ? n->generated_tokens : n->n_tokens,
                   n->ended ? &n->finish : NULL);
    }
    if (c->n_gen == 1)
        set_seed(&a.work, &c->gen[0].r, seed);
    access_log(&a);
    traffic_note(c->edge->traffic, c->route, a.status, a.total);
}

void account_aside(const struct edge *g, const struct exchange *x)
{
    int status = exchange_status(x);
    struct access a = {.end = status >= 400 ? ACCESS_FAILED
                              : status      ? ACCESS_SUCCESS
                                            : ACCESS_DROPPED,
                       .status = status ? status : 499,
                       .id = exchange_id(x),
                       .method = exchange_method(x),
                       .path = exchange_path(x) ? exchange_path(x) : "-",
                       .model = g->model_id,
                       .key = exchange_key(x),
                       .error = exchange_refusal(x),
                       .total = since(exchange_begun_ns(x), clock_ns())};
    access_log(&a);
    traffic_note(g->traffic, exchange_route(x), a.status, a.total);
}

static struct access stream_access(const struct edge *g, const struct account_stream *s,
                                   enum access_end end)
{
    return (struct access){.end = end,
                           .id = s->id,
                           .method = s->method,
                           .path = s->path,
                           .key = s->key,
                           .model = g->model_id,
                           .total = s->r ? since(s->r->times.received, clock_ns()) : 0};
}

void account_generation(const struct edge *g, const struct account_stream *s,
                        enum gen_finish finish)
{
    struct access a = stream_access(g, s, ACCESS_SUCCESS);
    char seed[24];
    metrics_add(g->metrics, M_REQUEST_COUNT, NULL, 1);
    metrics_add(g->metrics, M_REQUEST_SUCCESS, NULL, 1);
    observe(g->metrics, s->r, s->generated, finish);
    access_add(&a.work, s->r, s->generated, &finish);
    set_seed(&a.work, s->r, seed);
    access_log(&a);
}

void account_refused(const struct edge *g, const struct account_stream *s, const struct err *e)
{
    struct access a = stream_access(g, s, ACCESS_FAILED);
    failed(g->metrics, label(e->kind));
    a.error = e->msg;
    a.ours = error_is_ours(e);
    if (s->r)
        access_add(&a.work, s->r, s->generated, NULL);
    if (s->r && a.ours)
        metrics_add(g->metrics, M_FINISHED, "error", 1);
    access_log(&a);
}

void account_left(const struct edge *g, const struct account_stream *s)
{
    struct access a = stream_access(g, s, ACCESS_DROPPED);
    failed(g->metrics, "dropped");
    metrics_add(g->metrics, M_FINISHED, "abort", 1);
    access_add(&a.work, s->r, s->generated, NULL);
    access_log(&a);
}

/* ---------------------------------------------------------------- response headers */

static void add_number(struct call *c, const char *name, uint64_t v)
{
    char s[24];
    snprintf(s, sizeof(s), "%llu", (unsigned long long)v);
    exchange_add(c->x, name, s);
}

void account_stream_headers(struct call *c)
{
    exchange_add(c->x, "x-compute-type", c->edge->compute_type);
    add_number(c, "x-compute-characters", c->prompt_chars);
}

void account_warnings(struct call *c)
{
    char value[BODY_WARNINGS + 16];
    if (!c->warnings || !c->x)
        return;
    LOG(LOG_WARN, "parts of a request have no effect", LOGS("request_id", c->id),
        LOGS("path", c->path), LOGS("warnings", c->warnings));
    snprintf(value, sizeof(value), "299 - \"%s\"", c->warnings); /* RFC 7234: miscellaneous */
    exchange_add(c->x, "warning", value);
}

void account_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time)
{
    struct spent sum = {0};
    uint64_t prompt = 0, generated = 0;
    for (uint32_t i = first; i < first + n; i++) {
        struct spent s = spent_on(&c->gen[i].r, c->gen[i].answer.generated_tokens);
        sum.total += s.total / 1000000;
        sum.validation += s.validation / 1000000;
        sum.queue += s.queue / 1000000;
        sum.inference += s.inference / 1000000;
        sum.per_token += s.per_token / 1000000;
        prompt += c->gen[i].r.n_input;
        generated += c->gen[i].answer.generated_tokens;
    }
    exchange_add(c->x, "x-compute-type", c->edge->compute_type);
    if (compute_time) {
        char s[32];
        snprintf(s, sizeof(s), "%.9f", (double)(clock_ns() - c->received_ns) * 1e-9);
        exchange_add(c->x, "x-compute-time", s);
    }
    add_number(c, "x-compute-characters", c->prompt_chars);
    add_number(c, "x-total-time", (uint64_t)sum.total);
    add_number(c, "x-validation-time", (uint64_t)sum.validation);
    add_number(c, "x-queue-time", (uint64_t)sum.queue);
    add_number(c, "x-inference-time", (uint64_t)sum.inference);
    add_number(c, "x-time-per-token", (uint64_t)sum.per_token);
    add_number(c, "x-prompt-tokens", prompt);
    add_number(c, "x-generated-tokens", generated);
}
