/* deliver.h - turns the generations of a step into events of their requests.
 *
 * Scheduler thread. Events point into the step's memory and are valid only during the sink's call.
 * deliver_flush() flushes each sink owner once per step, at its end. */
#ifndef ROUTER_SCHEDULER_DELIVER_H
#define ROUTER_SCHEDULER_DELIVER_H
#include "common/err.h"
#include "common/rpc/pack.h"
#include "proto/generate.pb-c.h"
#include "router/scheduler/seq.h"

enum { DELIVER_SINKS = 64 };
struct deliver {
    struct gen_sink pending[DELIVER_SINKS]; /* sinks to flush; distinct `arg`s */
    uint32_t n;
};

/* Validates a generation. NULL, or a message that names the fault. */
const char *deliver_check(const Generate__V3__Generation *g);
/* Emits the events of a generation that passed deliver_check() and has no `error`. Sets q->req to
 * NULL after the last event. -1: out of memory, some were not emitted. */
int deliver_generation(struct deliver *d, struct seq *q, const Generate__V3__Generation *g,
                       int64_t now_ns, struct rpc_mem *m);
/* Emits PROGRESS if requested: `n` prompt tokens are in the KV cache. Nothing if that is not more
 * than in the last one. */
void deliver_progress(struct deliver *d, struct seq *q, uint32_t n);
/* Emits the last event of `q`, with this error. Nothing if the last event was already sent. */
void deliver_error(struct deliver *d, struct seq *q, const struct err *err, int64_t now_ns);
/* Flushes every sink that got an event since the last flush. */
void deliver_flush(struct deliver *d);
#endif
