/* call_books.h - what is written down about calls: metrics, log lines, response headers. Loop
 * thread. */
#ifndef ROUTER_CALL_BOOKS_H
#define ROUTER_CALL_BOOKS_H
#include "router/call.h"

void books_done(struct call *c); /* all generations ended normally */
void books_failed(struct call *c, const struct err *e);
void books_dropped(struct call *c); /* the client left before the end */

/* The same for a generation that no call holds. */
void books_generation(struct metrics *m, const char *path, const char *id,
                      const struct gen_request *r, uint32_t generated, enum gen_finish finish);
void books_refused(struct metrics *m, const char *path, const char *id, const struct err *e);

void books_stream_headers(struct call *c);
/* x-compute-*, x-*-time, x-*-tokens of the generations [first, first + n), summed up. */
void books_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time);
#endif
