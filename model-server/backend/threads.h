/* threads.h - a pool of workers that share loops.
 *
 * pool_run() divides [0, n) into one range per thread, at multiples of `grain`. The division is
 * always the same for the same n, grain and number of threads. So memory first touched in such a
 * loop is mostly read by the same thread in a later one. A range is processed in pieces. A thread
 * that has finished its own range takes pieces of others. So a thread that loses its core for
 * a while does not delay all. The division must not change a result.
 *
 * Workers spin briefly between loops (operations follow each other within microseconds) and then
 * sleep on a futex. So an idle server uses no CPU time, and processes that share cores get
 * them. */
#ifndef MODEL_SERVER_BACKEND_THREADS_H
#define MODEL_SERVER_BACKEND_THREADS_H
#include "common/err.h"
#include <stddef.h>

struct pool;
typedef void range_fn(void *arg, int thread, size_t begin, size_t end);

/* `threads` workers including the caller of pool_run(); 0: as many as this process may use
 * (affinity mask and cgroup quota). Only one thread at a time may call pool_run(). */
struct pool *pool_new(int threads, struct err *e);
void pool_free(struct pool *p); /* NULL is fine */
int pool_threads(const struct pool *p);

/* fn(arg, thread, begin, end) for non-empty pieces that cover [0, n) once; returns when all are
 * done. */
void pool_run(struct pool *p, range_fn *fn, void *arg, size_t n, size_t grain);
/* How many loops have been run; it wraps. A value that changes means a step. Any thread. */
unsigned pool_loops(const struct pool *p);
#endif
