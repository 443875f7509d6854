/* deliver.h - a step's generations as events of the requests they belong to.
 *
 * Scheduler thread. Events point into the step's memory and are valid during the sink's call only.
 * Each sink owner is flushed once per step: deliver_flush() at its end. */
#ifndef ROUTER_SCHEDULER_DELIVER_H
#define ROUTER_SCHEDULER_DELIVER_H
#include "common/err.h"
#include "common/rpc_pack.h"
#include "proto/generate.pb-c.h"
#include "router/scheduler/seq.h"

enum { DELIVER_SINKS = 64 };
struct deliver {
    struct gen_sink pending[DELIVER_SINKS]; /* to flush; distinct `arg`s */
    uint32_t n;
};

/* Does the generation say something? NULL, or what is wrong with it. */
const char *deliver_check(const Generate__V3__Generation *g);
/* The events of a generation that passed deliver_check(), without an `error` of its own. Sets
 * q->req to NULL after the last one. */
void deliver_generation(struct deliver *d, struct seq *q, const Generate__V3__Generation *g,
                        int64_t now_ns, struct rpc_mem *m);
/* The last event of `q`; nothing if it has had it. */
void deliver_error(struct deliver *d, struct seq *q, const struct err *err, int64_t now_ns);
void deliver_flush(struct deliver *d);
#endif
