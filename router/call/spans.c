#include "router/call/spans.h"
#include "common/clock.h"
#include "router/call/accounting.h"
#include "router/request/spans.h"
#include <stdio.h>
#include <string.h>

void spans_begin(struct call *c)
{
    struct trace_context parent;
    char text[TRACE_PARENT_LEN + 1];
    if (!c->edge->tracer || c->route->probe)
        return;
    bool given = trace_parse(exchange_header(c->x, "traceparent"), &parent);
    const char *state = given ? exchange_header(c->x, "tracestate") : NULL;
    c->trace = trace_child(given ? &parent : NULL);
    memcpy(c->trace_parent, parent.span_id, sizeof(c->trace_parent));
    trace_print(&c->trace, text);
    exchange_add(c->x, "traceparent", text);
    if (!state || !trace_state_valid(state))
        return;
    c->trace_state = arena_strdup(&c->arena, state, strlen(state));
    exchange_add(c->x, "tracestate", state);
}

/* The conventions' name of the operation. */
static const char *operation(const struct call *c)
{
    bool chat = strstr(c->path, "/chat/completions") || !strcmp(c->path, "/v1/messages");
    return chat ? "chat" : "text_completion";
}

static void add_request(struct trace_span *s, const struct call *c, const char *status)
{
    span_attr(s, TRACE_S("http.request.method", c->method));
    span_attr(s, TRACE_S("http.route", c->path));
    span_attr(s, TRACE_S("url.path", c->path));
    span_attr(s, TRACE_I("http.response.status_code", account_status(c)));
    span_attr(s, TRACE_S("llm.request.id", c->id));
    if (c->user)
        span_attr(s, TRACE_S("user.id", c->user));
    if (c->error || c->dropped)
        span_attr(s, TRACE_S("error.type", c->dropped && !c->error ? "client_left" : status));
}

void spans_end(const struct call *c)
{
    char name[160], status[16];
    struct gen_sums sums = {0};
    struct trace_span s = {.self = c->trace,
                           .state = c->trace_state,
                           .name = name,
                           .kind = TRACE_SERVER,
                           .start_ns = c->received_ns,
                           .end_ns = c->over_ns ? c->over_ns : clock_ns(),
                           .error = c->ours ? c->error : NULL};
    if (!c->trace.sampled)
        return;
    snprintf(name, sizeof(name), "%s %s", c->method, c->path);
    snprintf(status, sizeof(status), "%d", account_status(c));
    memcpy(s.parent, c->trace_parent, sizeof(s.parent));
    for (uint32_t i = 0; i < c->n_gen; i++) {
        const struct answer *a = &c->gen[i].answer;
        gen_sums_add(&sums, &c->gen[i].r, a->ended ? a->generated_tokens : a->n_tokens, a->ended,
                     a->finish);
        gen_spans_parts(c->edge->tracer, &s, &c->gen[i].r, s.end_ns,
                        c->n_gen > 1 ? (int64_t)i : -1);
    }
    add_request(&s, c, status);
    if (c->n_gen)
        gen_spans_describe(&s, operation(c), c->edge->model_id, &c->gen[0].r, &sums);
    tracer_add(c->edge->tracer, &s);
}
