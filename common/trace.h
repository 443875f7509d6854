/* trace.h - spans, and their way to an OpenTelemetry collector (OTLP over gRPC).
 *
 * A context is what W3C Trace Context (level 1) sends as `traceparent`. A span is described when it
 * has ended, with the times that were taken anyway; nothing is kept while it lasts. tracer_add()
 * encodes it and never blocks: the queue is bounded, and what finds it full is dropped and counted.
 * A thread of the tracer's own sends batches and tries again while the collector is away. */
#ifndef COMMON_TRACE_H
#define COMMON_TRACE_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_PARENT_LEN = 55, TRACE_STATE_MAX = 512 };

struct trace_context { /* zero: no trace */
    uint8_t trace_id[16], span_id[8];
    bool sampled;
};

/* "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", as the specification reads it: later
 * versions by their first four parts; false and `*out` zero for anything else. */
bool trace_parse(const char *traceparent, struct trace_context *out);
bool trace_known(const struct trace_context *c); /* is there one? */
/* May this `tracestate` be passed on? A list of at most 32 `key=value`, of TRACE_STATE_MAX bytes in
 * all; NULL: no. */
bool trace_state_valid(const char *tracestate);
void trace_print(const struct trace_context *c, char out[TRACE_PARENT_LEN + 1]);
/* A new span of the parent's trace; without a parent (NULL or zero) the first of a new trace, which
 * is sampled. */
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
    size_t n; /* of the list */
};
#define TRACE_S(k, v)        ((struct trace_attr){(k), TRACE_STR, {.str = (v)}, 0})
#define TRACE_I(k, v)        ((struct trace_attr){(k), TRACE_INT, {.i = (int64_t)(v)}, 0})
#define TRACE_D(k, v)        ((struct trace_attr){(k), TRACE_NUM, {.num = (double)(v)}, 0})
#define TRACE_L(k, v, count) ((struct trace_attr){(k), TRACE_LIST, {.list = (v)}, (count)})

enum trace_kind { TRACE_INTERNAL = 1, TRACE_SERVER, TRACE_CLIENT }; /* OTLP's numbers */
enum { TRACE_ATTRS_MAX = 32 };

struct trace_span {
    struct trace_context self;
    uint8_t parent[8]; /* zero: the first of its trace */
    const char *state; /* its `tracestate`; NULL: none */
    const char *name;
    enum trace_kind kind;
    int64_t start_ns, end_ns; /* clock_ns() */
    struct trace_attr attr[TRACE_ATTRS_MAX];
    size_t n_attrs;
    const char *event; /* one thing that happened on the way, at event_ns; NULL: nothing */
    int64_t event_ns;
    const char *error; /* NULL: none. Texts must be UTF-8; what is not is replaced */
};

enum trace_fate { TRACE_SENT, TRACE_FULL, TRACE_LOST };

struct tracer_options {
    const char *endpoint;     /* "http://host:4317", "host:4317", "host"; https is refused */
    const char *service_name; /* resource attribute service.name */
    size_t queue;             /* most spans waiting; 0: 8192 */
    /* What became of spans: sent, dropped because the queue was full, or not taken by the
     * collector. Any thread. NULL: not wanted. */
    void (*count)(void *arg, enum trace_fate fate, uint64_t n);
    void *arg;
};

struct tracer;
struct tracer *tracer_new(const struct tracer_options *o, struct err *e);
/* Any thread. Does nothing when t is NULL or the span is not sampled. */
void tracer_add(struct tracer *t, const struct trace_span *s);
void tracer_free(struct tracer *t); /* sends what waits, for at most some seconds */
#endif
