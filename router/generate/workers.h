/* workers.h - a few threads that parse, template and tokenize, so that the loop never does.
 *
 * Jobs are run in the order of submission. Each thread keeps one tokenizer scratch. */
#ifndef ROUTER_GENERATE_WORKERS_H
#define ROUTER_GENERATE_WORKERS_H
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include <stdint.h>

struct workers;
struct job { /* embedded in what is worked on */
    struct job *next;
    void (*run)(struct job *j, struct tok_scratch **scratch); /* on a worker thread */
};

struct workers *workers_new(uint32_t n, struct err *e);
void workers_submit(struct workers *w, struct job *j); /* any thread */
/* Runs what is queued, then joins the threads; what is submitted later is not run. */
void workers_stop(struct workers *w);
void workers_free(struct workers *w); /* after workers_stop(), which it calls if need be */
#endif
