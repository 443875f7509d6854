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

static void observe(struct metrics *m, const struct gen_request *r, uint32_t generated)
{
    struct spent s = spent_on(r, generated);
    metrics_observe(m, M_REQUEST_DURATION, NULL, (double)s.total * 1e-9);
    metrics_observe(m, M_VALIDATION_DURATION, NULL, (double)s.validation * 1e-9);
    metrics_observe(m, M_QUEUE_DURATION, NULL, (double)s.queue * 1e-9);
    metrics_observe(m, M_INFERENCE_DURATION, NULL, (double)s.inference * 1e-9);
    if (r->times.first)
        metrics_observe(m, M_FIRST_TOKEN_DURATION, NULL,
                        (double)since(r->times.received, r->times.first) * 1e-9);
    metrics_observe(m, M_TOKEN_DURATION, NULL, (double)s.per_token * 1e-9);
    metrics_observe(m, M_GENERATED_TOKENS, NULL, generated);
    metrics_observe(m, M_INPUT_LENGTH, NULL, r->n_ids);
    metrics_observe(m, M_MAX_NEW_TOKENS, NULL, r->params.max_new_tokens);
}

static void log_success(const char *path, const char *id, const struct gen_request *r,
                        uint32_t generated, enum gen_finish finish)
{
    struct spent s = spent_on(r, generated);
    char seed[24] = "-"; /* as text: collectors read numbers as doubles */
    if (r->params.do_sample)
        snprintf(seed, sizeof(seed), "%llu", (unsigned long long)r->params.seed);
    LOG(LOG_INFO, "Success", LOGS("path", path), LOGS("request_id", id),
        LOGI("input_tokens", r->n_ids), LOGI("generated_tokens", generated),
        LOGS("finish_reason", gen_finish_name(finish)), LOGD("total_time", (double)s.total * 1e-9),
        LOGD("validation_time", (double)s.validation * 1e-9),
        LOGD("queue_time", (double)s.queue * 1e-9),
        LOGD("inference_time", (double)s.inference * 1e-9),
        LOGD("time_per_token", (double)s.per_token * 1e-9), LOGS("seed", seed));
}

void books_done(struct call *c)
{
    struct metrics *m = c->edge->metrics;
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_SUCCESS, NULL, 1);
    for (uint32_t i = 0; i < c->n_gen; i++) {
        const struct generation *g = &c->gen[i];
        observe(m, &g->r, g->answer.generated_tokens);
        log_success(c->path, c->x ? exchange_id(c->x) : "-", &g->r, g->answer.generated_tokens,
                    g->answer.finish);
    }
}

void books_generation(struct metrics *m, const char *path, const char *id,
                      const struct gen_request *r, uint32_t generated, enum gen_finish finish)
{
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_SUCCESS, NULL, 1);
    observe(m, r, generated);
    log_success(path, id, r, generated, finish);
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

static void refused(struct metrics *m, const char *path, const char *id, int status,
                    const struct err *e)
{
    bool ours = err_status(e->kind) >= 500 || e->kind == ERR_GENERATION;
    metrics_add(m, M_REQUEST_COUNT, NULL, 1);
    metrics_add(m, M_REQUEST_FAILURE, label(e->kind), 1);
    LOG(ours ? LOG_ERROR : LOG_INFO, "Failed", LOGS("path", path), LOGS("request_id", id),
        LOGI("status", status), LOGS("error", e->msg));
}

void books_refused(struct metrics *m, const char *path, const char *id, const struct err *e)
{
    refused(m, path, id, err_status(e->kind), e);
}

void books_failed(struct call *c, const struct err *e)
{
    refused(c->edge->metrics, c->path, c->x ? exchange_id(c->x) : "-",
            error_status(c->errors, e->kind), e);
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
        struct spent s = spent_on(&c->gen[i].r, c->gen[i].answer.generated_tokens);
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
