/* draft.h - the draft model's process: started beside the service, restarted whenever it ends, and
 * optional (docs/decisions/speculation.md). One rank; the router connects to it by itself. Main
 * thread only. */
#ifndef LAUNCHER_DRAFT_H
#define LAUNCHER_DRAFT_H
#include "launcher/process/child.h"

struct draft {
    struct config cfg;
    struct plan plan;
    struct arena arena; /* reset at each start of the process */
    struct child *child;
    int64_t started, again; /* ms; again: time of the next start, 0: none */
    uint32_t pause_ms;
    bool on;
};

/* Prepares the draft model; starts nothing. `child` is used for it. Without --draft-model-id all
 * functions do nothing. */
void draft_init(struct draft *d, const struct plan *base, struct child *child);
void draft_start(struct draft *d);
void draft_lost(struct draft *d);              /* its process has ended */
int64_t draft_deadline(const struct draft *d); /* time of the next draft_late() in ms; 0: none */
void draft_late(struct draft *d, int64_t now);
void draft_stop(struct draft *d); /* no restart from now on */
void draft_free(struct draft *d);
#endif
