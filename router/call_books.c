#include "router/call_books.h"
#include "common/clock.h"
#include "common/log.h"
#include "router/metrics.h"
#include <stdio.h>
#include <string.h>

struct spent { /* nanoseconds */
    int64_t total, validation, queue, inference, per_token;
};

static int64_t since(int64_t from, int64_t to) { return from && to > from ? to - from : 0; }

static struct spent spent_on(const struct generation *g)
{
    const struct gen_times *t = &g->r.times;
    int64_t end = t->ended ? t->ended : clock_ns();
    struct spent s = {
        .total = since(t->received, end),
        .validation = since(t->received, t->queued),
        .queue = since(t->queued, t->batched),
        .inference = since(t->batched, end),
    };
    s.per_token = g->answer.generated_tokens ? s.inference / g->answer.generated_tokens : 0;
    return s;
}

static void observe(struct metrics *m, const struct generation *g)
{
    struct spent s = spent_on(g);
    metrics_observe(m, M_REQUEST_DURATION, NULL, (double)s.total * 1e-9);
    metrics_observe(m, M_VALIDATION_DURATION, NULL, (double)s.validation * 1e-9);
    metrics_observe(m, M_QUEUE_DURATION, NULL, (double)s.queue * 1e-9);
    metrics_observe(m, M_INFERENCE_DURATION, NULL, (double)s.inference * 1e-9);
    if (g->r.times.first)
        metrics_observe(m, M_FIRST_TOKEN_DURATION, NULL,
                        (double)since(g->r.times.received, g->r.times.first) * 1e-9);
    metrics_observe(m, M_TOKEN_DURATION, NULL, (double)s.per_token * 1e-9);
    metrics_observe(m, M_GENERATED_TOKENS, NULL, g->answer.generated_tokens);
    metrics_observe(m, M_INPUT_LENGTH, NULL, g->r.n_ids);
    metrics_observe(m, M_MAX_NEW_TOKENS, NULL, g->r.params.max_new_tokens);
}

void books_done(struct call *c)
{
    struct metrics *m = c->edge->metrics;
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_SUCCESS, NULL, 1);
    for (uint32_t i = 0; i < c->n_gen; i++) {
        const struct generation *g = &c->gen[i];
        struct spent s = spent_on(g);
        char seed[24] = "-"; /* as text: collectors read numbers as doubles */
        if (g->r.params.do_sample)
            snprintf(seed, sizeof(seed), "%llu", (unsigned long long)g->r.params.seed);
        observe(m, g);
        LOG(LOG_INFO, "Success", LOGS("path", c->path),
            LOGS("request_id", c->x ? exchange_id(c->x) : "-"), LOGI("input_tokens", g->r.n_ids),
            LOGI("generated_tokens", g->answer.generated_tokens),
            LOGS("finish_reason", gen_finish_name(g->answer.finish)),
            LOGD("total_time", (double)s.total * 1e-9),
            LOGD("validation_time", (double)s.validation * 1e-9),
            LOGD("queue_time", (double)s.queue * 1e-9),
            LOGD("inference_time", (double)s.inference * 1e-9),
            LOGD("time_per_token", (double)s.per_token * 1e-9), LOGS("seed", seed));
    }
}

static const char *label(enum err_kind k)
{
    switch (k) {
    case ERR_OVERLOADED:
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

void books_failed(struct call *c, const struct err *e)
{
    bool ours = err_status(e->kind) >= 500 || e->kind == ERR_GENERATION;
    metrics_add(c->edge->metrics, M_REQUEST_COUNT, NULL, 1);
    metrics_add(c->edge->metrics, M_REQUEST_FAILURE, label(e->kind), 1);
    LOG(ours ? LOG_ERROR : LOG_INFO, "Failed", LOGS("path", c->path),
        LOGS("request_id", c->x ? exchange_id(c->x) : "-"),
        LOGI("status", error_status(c->errors, e->kind)), LOGS("error", e->msg));
}

void books_dropped(struct call *c)
{
    if (!c->busy && !c->n_gen)
        return; /* an answer that was made but not fully sent */
    metrics_add(c->edge->metrics, M_REQUEST_COUNT, NULL, 1);
    metrics_add(c->edge->metrics, M_REQUEST_FAILURE, "dropped", 1);
    uint64_t tokens = 0;
    for (uint32_t i = 0; !c->busy && i < c->n_gen; i++)
        tokens += c->gen[i].answer.n_tokens;
    LOG(LOG_INFO, "Dropped: the client has left", LOGS("path", c->path), LOGI("tokens", tokens),
        LOGD("total_time", (double)(clock_ns() - c->received_ns) * 1e-9));
}

static void add_number(struct call *c, const char *name, uint64_t v)
{
    char s[24];
    snprintf(s, sizeof(s), "%llu", (unsigned long long)v);
    exchange_add(c->x, name, s);
}

void books_stream_headers(struct call *c)
{
    exchange_add(c->x, "x-compute-type", c->edge->compute_type);
    add_number(c, "x-compute-characters", c->prompt_chars);
}

void books_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time)
{
    struct spent sum = {0};
    uint64_t prompt = 0, generated = 0;
    for (uint32_t i = first; i < first + n; i++) {
        struct spent s = spent_on(&c->gen[i]);
        sum.total += s.total / 1000000;
        sum.validation += s.validation / 1000000;
        sum.queue += s.queue / 1000000;
        sum.inference += s.inference / 1000000;
        sum.per_token += s.per_token / 1000000;
        prompt += c->gen[i].r.n_ids;
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
