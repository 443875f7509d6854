/* accounting.h - what is written down about calls: metrics, log lines, response headers. Loop
 * thread. */
#ifndef ROUTER_CALL_ACCOUNTING_H
#define ROUTER_CALL_ACCOUNTING_H
#include "router/call/call.h"

void account_done(struct call *c);
void account_texts(struct call *c);
/* the same for vectors and scores */ /* all generations ended normally */
void account_failed(struct call *c, const struct err *e);
void account_dropped(struct call *c); /* the client left before the end */
/* What was answered; 499 where the client left before that. */
int account_status(const struct call *c);
/* The call is over and no thread works for it any more: its line of the access log. */
void account_line(const struct call *c);
/* The line of a request that never became a call. */
void account_aside(const struct edge *g, const struct exchange *x);

/* Metrics and line of a generation that no call holds. */
struct account_stream {
    const char *id, *path, *method, *key;
    const struct gen_request *r; /* NULL: it was refused before there was one */
    uint32_t generated;          /* tokens sent */
};
void account_generation(const struct edge *g, const struct account_stream *s,
                        enum gen_finish finish);
void account_refused(const struct edge *g, const struct account_stream *s, const struct err *e);
void account_left(const struct edge *g, const struct account_stream *s); /* by its client */

/* What of the body has no effect (struct body): a line of the log and the header `warning`. Before
 * the reply begins. */
void account_warnings(struct call *c);
void account_stream_headers(struct call *c);
/* x-compute-*, x-*-time, x-*-tokens of the generations [first, first + n), summed up. */
void account_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time);
#endif
