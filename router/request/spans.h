/* spans.h - OpenTelemetry spans of generations, for all protocols.
 *
 *   <owner>                          attributes gen_ai.*; event first_token
 *     validate                       from arrival until queued
 *     queue                          until scheduled
 *     prefill                        until its first token; parent of the shards' spans
 *     decode                         until its last token
 *
 * Attributes follow the semantic conventions for generative AI (1.37, in development).
 * gen_ai.latency.* are vLLM's, which dashboards use. */
#ifndef ROUTER_REQUEST_SPANS_H
#define ROUTER_REQUEST_SPANS_H
#include "common/rpc/trace.h"
#include "router/request/request.h"

/* No effect if the span has its maximum of attributes. */
void span_attr(struct trace_span *s, struct trace_attr a);

struct gen_sums { /* sums over the generations of one owner; zero-initialise */
    uint64_t n, input, cached, output;
    int64_t first_ns, batched_ns; /* the earliest; 0: none */
    const char *finish[TRACE_ATTRS_MAX];
    size_t n_finish;
};
/* `output`: generated tokens. `finish` is valid if `ended`. */
void gen_sums_add(struct gen_sums *sums, const struct gen_request *r, uint64_t output, bool ended,
                  enum gen_finish finish);

/* Adds gen_ai.* and the event to the owner's span, whose times must be set. `r`: one of its
 * generations. `s` keeps pointers into `sums`. */
void gen_spans_describe(struct trace_span *s, const char *operation, const char *model,
                        const struct gen_request *r, const struct gen_sums *sums);
/* Sends the child spans of one generation; unfinished parts end at `end_ns`. `owner`: the parent
 * span. `index`: the generation's index within the owner; negative: it is the only one. */
void gen_spans_parts(struct tracer *t, const struct trace_span *owner, const struct gen_request *r,
                     int64_t end_ns, int64_t index);
#endif
