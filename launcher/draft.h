/* draft.h - the draft model's process: started beside the service, started again whenever it ends,
 * and never required (docs/decisions/speculation.md). One rank; the router finds it by itself.
 * Main thread only. */
#ifndef LAUNCHER_DRAFT_H
#define LAUNCHER_DRAFT_H
#include "launcher/child.h"

struct draft {
    struct config cfg;
    struct plan plan;
    struct arena arena; /* of one life of the process */
    struct child *child;
    int64_t started, again; /* ms; again: when it is to be started, 0: not */
    uint32_t pause_ms;
    bool on;
};

/* `child` is for it. Nothing is started, and nothing ever will be without --draft-model-id. */
void draft_init(struct draft *d, const struct plan *base, struct child *child);
void draft_start(struct draft *d);
void draft_lost(struct draft *d);              /* its process has ended */
int64_t draft_deadline(const struct draft *d); /* when draft_late() is due; 0: never */
void draft_late(struct draft *d, int64_t now);
void draft_stop(struct draft *d); /* it is not started again */
void draft_free(struct draft *d);
#endif
