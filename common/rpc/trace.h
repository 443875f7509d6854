/* trace.h - OpenTelemetry spans, exported to a collector (OTLP over gRPC).
 *
 * A context is the content of `traceparent` in W3C Trace Context (level 1). A span is recorded when
 * it has ended, from timestamps that exist anyway. tracer_add() encodes it and never blocks: the
 * queue is bounded, and spans that do not fit are dropped and counted. A thread sends batches, and
 * retries while the collector is unreachable. */
#ifndef COMMON_RPC_TRACE_H
#define COMMON_RPC_TRACE_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_PARENT_LEN = 55, TRACE_STATE_MAX = 512 };

struct trace_context { /* zero: no trace */
    uint8_t trace_id[16], span_id[8];
    bool sampled;
};

/* Parses "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" as specified: of later versions
 * the first four parts. False, with `*out` zeroed, for anything else. */
bool trace_parse(const char *traceparent, struct trace_context *out);
bool trace_known(const struct trace_context *c); /* is it not zero? */
/* Is this `tracestate` valid to pass on? At most 32 items `key=value`, TRACE_STATE_MAX bytes in
 * all; NULL: no. */
bool trace_state_valid(const char *tracestate);
void trace_print(const struct trace_context *c, char out[TRACE_PARENT_LEN + 1]);
/* A new child span of the parent. Without a parent (NULL or zero) it is the root of a new, sampled
 * trace. */
struct trace_context trace_child(const struct trace_context *parent);

struct trace_attr {
    const char *key;
    enum { TRACE_STR, TRACE_INT, TRACE_NUM, TRACE_LIST } type;
    union {
        const char *str;
        int64_t i;
        double num;
        const char *const *list; /* of strings */
    };
    size_t n; /* length of the list */
};
#define TRACE_S(k, v)        ((struct trace_attr){(k), TRACE_STR, {.str = (v)}, 0})
#define TRACE_I(k, v)        ((struct trace_attr){(k), TRACE_INT, {.i = (int64_t)(v)}, 0})
#define TRACE_D(k, v)        ((struct trace_attr){(k), TRACE_NUM, {.num = (double)(v)}, 0})
#define TRACE_L(k, v, count) ((struct trace_attr){(k), TRACE_LIST, {.list = (v)}, (count)})

enum trace_kind { TRACE_INTERNAL = 1, TRACE_SERVER, TRACE_CLIENT }; /* OTLP's numbers */
enum { TRACE_ATTRS_MAX = 32 };

struct trace_span {
    struct trace_context self;
    uint8_t parent[8]; /* zero: root span */
    const char *state; /* its `tracestate`; NULL: none */
    const char *name;
    enum trace_kind kind;
    int64_t start_ns, end_ns; /* clock_ns() */
    struct trace_attr attr[TRACE_ATTRS_MAX];
    size_t n_attrs;
    const char *event; /* a single event, at event_ns; NULL: none */
    int64_t event_ns;
    const char *error; /* error message; NULL: none. Invalid UTF-8 in texts is replaced */
};

enum trace_fate { TRACE_SENT, TRACE_FULL, TRACE_LOST };

struct tracer_options {
    const char *endpoint;     /* "http://host:4317", "host:4317", "host"; https is refused */
    const char *service_name; /* resource attribute service.name */
    size_t queue;             /* most queued spans; 0: 8192 */
    /* Counts spans: sent, dropped because the queue was full, or rejected by the collector. Any
     * thread. NULL: not counted. */
    void (*count)(void *arg, enum trace_fate fate, uint64_t n);
    void *arg;
};

struct tracer;
struct tracer *tracer_new(const struct tracer_options *o, struct err *e);
/* Any thread. No effect if t is NULL or the span is not sampled. */
void tracer_add(struct tracer *t, const struct trace_span *s);
void tracer_free(struct tracer *t); /* sends queued spans first, for at most some seconds */
#endif
