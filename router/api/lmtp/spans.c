/* OpenTelemetry spans of a stream: see router/request/spans.h. */
#include "router/request/spans.h"
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include "router/http/errors.h"
#include <string.h>

static const char *name_of(bool score) { return score ? "LMTP SCORE" : "LMTP GENERATE"; }

static struct trace_context begin(const struct lmtp_message *m, uint8_t parent[8])
{
    memcpy(parent, m->trace.span_id, sizeof(m->trace.span_id));
    return trace_child(&m->trace);
}

static const char *state_of(const struct lmtp_message *m, bool continued)
{
    return continued && *m->tracestate ? m->tracestate : NULL;
}

void stream_spans_begin(struct stream *s, const struct lmtp_message *m)
{
    if (!s->edge->tracer)
        return;
    s->trace = begin(m, s->trace_parent);
    const char *state = state_of(m, trace_known(&m->trace));
    if (state)
        s->trace_state = arena_strdup(&s->r.arena, state, strlen(state));
    if (s->trace.sampled)
        s->r.trace = trace_child(&s->trace);
}

static void add_stream(struct trace_span *s, const char *id, const char *error_type)
{
    span_attr(s, TRACE_S("network.protocol.name", "lmtp"));
    span_attr(s, TRACE_S("llm.request.id", id));
    if (error_type)
        span_attr(s, TRACE_S("error.type", error_type));
}

/* An internal error, not the client's; NULL: none. */
static const char *fault_of(const struct err *e)
{
    bool ours = e && error_is_ours(e);
    return ours ? e->msg : NULL;
}

void stream_spans_end(const struct stream *s, const struct gen_event *last)
{
    const struct err *e = last->type == GEN_ERROR && !s->cancelled ? last->err : NULL;
    uint64_t generated = last->end ? last->end->generated_tokens : s->n_tokens;
    struct gen_sums sums = {0};
    struct trace_span x = {.self = s->trace,
                           .state = s->trace_state,
                           .name = name_of(s->score),
                           .kind = TRACE_SERVER,
                           .start_ns = s->r.times.received,
                           .end_ns = clock_ns(),
                           .error = fault_of(e)};
    if (!s->trace.sampled)
        return;
    memcpy(x.parent, s->trace_parent, sizeof(x.parent));
    gen_sums_add(&sums, &s->r, s->score ? 0 : generated, !e && !s->cancelled,
                 last->end ? last->end->finish : FINISH_STOP);
    gen_spans_parts(s->edge->tracer, &x, &s->r, x.end_ns, -1);
    add_stream(&x, s->id.text, s->cancelled ? "cancelled" : e ? err_wire(e->kind) : NULL);
    gen_spans_describe(&x, "text_completion", s->edge->model_id, &s->r, &sums);
    tracer_add(s->edge->tracer, &x);
}

void stream_spans_refused(const struct edge *g, const struct lmtp_message *m, const struct err *e)
{
    struct trace_span x = {.name = name_of(m->type == LMTP_SCORE),
                           .kind = TRACE_SERVER,
                           .start_ns = clock_ns(),
                           .error = fault_of(e)};
    if (!g->tracer || m->type == LMTP_RESUME)
        return;
    x.end_ns = x.start_ns;
    x.self = begin(m, x.parent);
    x.state = state_of(m, trace_known(&m->trace));
    add_stream(&x, m->id.text, err_wire(e->kind));
    tracer_add(g->tracer, &x);
}
