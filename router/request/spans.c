#include "router/request/spans.h"
#include <string.h>

void span_attr(struct trace_span *s, struct trace_attr a)
{
    if (s->n_attrs < TRACE_ATTRS_MAX)
        s->attr[s->n_attrs++] = a;
}

static void earliest(int64_t *t, int64_t at)
{
    if (at && (!*t || at < *t))
        *t = at;
}

void gen_sums_add(struct gen_sums *sums, const struct gen_request *r, uint64_t output, bool ended,
                  enum gen_finish finish)
{
    if (!r->same) {
        sums->input += r->n_input;
        sums->cached += r->n_cached;
    }
    sums->n++;
    sums->output += output;
    earliest(&sums->first_ns, r->times.first);
    earliest(&sums->batched_ns, r->times.batched);
    if (ended && sums->n_finish < TRACE_ATTRS_MAX)
        sums->finish[sums->n_finish++] = finish == FINISH_LENGTH ? "length" : "stop";
}

static void add_params(struct trace_span *s, const struct gen_params *p)
{
    span_attr(s, TRACE_I("gen_ai.request.max_tokens", p->max_new_tokens));
    if (!p->do_sample)
        return;
    span_attr(s, TRACE_D("gen_ai.request.temperature", p->temperature));
    if (p->top_p < 1)
        span_attr(s, TRACE_D("gen_ai.request.top_p", p->top_p));
    if (p->top_k)
        span_attr(s, TRACE_D("gen_ai.request.top_k", p->top_k));
    span_attr(s, TRACE_I("gen_ai.request.seed", p->seed));
}

void gen_spans_describe(struct trace_span *s, const char *operation, const char *model,
                        const struct gen_request *r, const struct gen_sums *sums)
{
    span_attr(s, TRACE_S("gen_ai.operation.name", operation));
    span_attr(s, TRACE_S("gen_ai.request.model", model));
    span_attr(s, TRACE_S("gen_ai.response.model", model));
    add_params(s, &r->params);
    if (sums->n > 1)
        span_attr(s, TRACE_I("gen_ai.request.choice.count", sums->n));
    span_attr(s, TRACE_I("gen_ai.usage.input_tokens", sums->input));
    span_attr(s, TRACE_I("gen_ai.usage.cache_read.input_tokens", sums->cached));
    span_attr(s, TRACE_I("gen_ai.usage.output_tokens", sums->output));
    if (sums->n_finish)
        span_attr(s, TRACE_L("gen_ai.response.finish_reasons", sums->finish, sums->n_finish));
    if (sums->batched_ns)
        span_attr(s, TRACE_D("gen_ai.latency.time_in_queue",
                             (double)(sums->batched_ns - r->times.queued) * 1e-9));
    if (sums->first_ns) {
        span_attr(s, TRACE_D("gen_ai.latency.time_to_first_token",
                             (double)(sums->first_ns - s->start_ns) * 1e-9));
        s->event = "first_token";
        s->event_ns = sums->first_ns;
    }
    span_attr(s, TRACE_D("gen_ai.latency.e2e", (double)(s->end_ns - s->start_ns) * 1e-9));
}

/* Sends a part that began. If it did not end, it lasted until `end`. */
static void add_part(struct tracer *t, const struct trace_span *owner, const char *name,
                     const struct trace_context *self, int64_t from, int64_t to, int64_t end,
                     int64_t index)
{
    struct trace_span s = {.self = self ? *self : trace_child(&owner->self),
                           .state = owner->state,
                           .name = name,
                           .kind = TRACE_INTERNAL,
                           .start_ns = from,
                           .end_ns = to ? to : end};
    if (!from || s.end_ns < from)
        return;
    memcpy(s.parent, owner->self.span_id, sizeof(s.parent));
    if (index >= 0)
        span_attr(&s, TRACE_I("llm.choice.index", index));
    tracer_add(t, &s);
}

void gen_spans_parts(struct tracer *t, const struct trace_span *owner, const struct gen_request *r,
                     int64_t end_ns, int64_t index)
{
    const struct gen_times *at = &r->times;
    int64_t last = at->ended ? at->ended : end_ns;
    add_part(t, owner, "validate", NULL, at->received, at->queued, end_ns, index);
    add_part(t, owner, "queue", NULL, at->queued, at->batched, last, index);
    add_part(t, owner, "prefill", &r->trace, at->batched, at->first, last, index);
    add_part(t, owner, "decode", NULL, at->first, last, last, index);
}
