/* accounting.h - records calls: metrics, log lines, response headers. Loop thread. */
#ifndef ROUTER_CALL_ACCOUNTING_H
#define ROUTER_CALL_ACCOUNTING_H
#include "router/call/call.h"

/* All generations ended normally. account_texts(): the same for embeddings and scores. */
void account_done(struct call *c);
void account_texts(struct call *c);
/* The call failed with `e`. */
void account_failed(struct call *c, const struct err *e);
/* The client disconnected before the end. `home`: the edge that the call began at; a worker that is
 * busy with the call may change c->edge and c->n_gen, and has submitted no generation. */
void account_dropped(const struct edge *home, const struct call *c);
/* The status that was sent; 499 if the client disconnected before. */
int account_status(const struct call *c);
/* Writes the access log line of a call that has ended. No other thread may use the call any
 * more. */
void account_line(const struct call *c);
/* Writes the line of a request that never became a call. */
void account_aside(const struct edge *g, const struct exchange *x);

/* A generation outside of a call, for metrics and the access log. */
struct account_stream {
    const char *id, *path, *method, *key;
    const struct gen_request *r; /* NULL: refused before it was created */
    uint32_t generated;          /* tokens sent */
};
/* It ended normally; it was refused with `e`; the client disconnected. */
void account_generation(const struct edge *g, const struct account_stream *s,
                        enum gen_finish finish);
void account_refused(const struct edge *g, const struct account_stream *s, const struct err *e);
void account_left(const struct edge *g, const struct account_stream *s);

/* Reports parts of the body that had no effect (struct body): a log line and the header `warning`.
 * Call before the reply begins. */
void account_warnings(struct call *c);
/* Adds the headers of a stream, before its first event. */
void account_stream_headers(struct call *c);
/* Adds x-compute-*, x-*-time, x-*-tokens, summed over the generations [first, first + n). */
void account_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time);
#endif
