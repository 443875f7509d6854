/* workers.h - a thread pool that parses, applies templates and tokenizes, outside the event loop.
 *
 * Jobs start in the order of submission. Each thread keeps one tokenizer scratch. */
#ifndef ROUTER_GENERATE_WORKERS_H
#define ROUTER_GENERATE_WORKERS_H
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include <stdint.h>

struct workers;
struct job { /* embedded in its owner */
    struct job *next;
    void (*run)(struct job *j, struct tok_scratch **scratch); /* on a worker thread */
};

/* Starts n threads. */
struct workers *workers_new(uint32_t n, struct err *e);
void workers_submit(struct workers *w, struct job *j); /* from any thread */
/* Runs the queued jobs, then joins the threads. Jobs submitted later never run. */
void workers_stop(struct workers *w);
void workers_free(struct workers *w); /* calls workers_stop() if that was not done */
#endif
