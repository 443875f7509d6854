/* spans.h - what spans say about generations, whatever protocol asked for them.
 *
 *   <owner>                          attributes gen_ai.*; event first_token
 *     validate                       from arrival until it was queued
 *     queue                          until it was scheduled
 *     prefill                        until its first token; the shards' spans are its children
 *     decode                         until its last
 *
 * Attributes follow the semantic conventions for generative AI (1.37, in development);
 * gen_ai.latency.* are those of vLLM, which dashboards know. */
#ifndef ROUTER_REQUEST_SPANS_H
#define ROUTER_REQUEST_SPANS_H
#include "common/trace.h"
#include "router/request/request.h"

/* Nothing where the span has as many as it can. */
void span_attr(struct trace_span *s, struct trace_attr a);

struct gen_sums { /* of all generations of one owner; zero-initialise */
    uint64_t n, input, cached, output;
    int64_t first_ns, batched_ns; /* the earliest; 0: none */
    const char *finish[TRACE_ATTRS_MAX];
    size_t n_finish;
};
/* `output`: its tokens. `ended`: it did, as `finish` says. */
void gen_sums_add(struct gen_sums *sums, const struct gen_request *r, uint64_t output, bool ended,
                  enum gen_finish finish);

/* gen_ai.* and the event, into the owner's span, whose times are set. `r`: one of its generations.
 * `s` borrows from `sums`. */
void gen_spans_describe(struct trace_span *s, const char *operation, const char *model,
                        const struct gen_request *r, const struct gen_sums *sums);
/* The parts of one generation; what did not end lasted until `end_ns`. `owner`: the span they
 * belong to. `index`: among the owner's; negative: it has one. */
void gen_spans_parts(struct tracer *t, const struct trace_span *owner, const struct gen_request *r,
                     int64_t end_ns, int64_t index);
#endif
