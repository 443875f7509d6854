/* supervise_impl.h - private: shared by the loop (supervise.c) and the steps (steps.c) of a
 * launch. */
#ifndef LAUNCHER_SUPERVISE_IMPL_H
#define LAUNCHER_SUPERVISE_IMPL_H
#include "launcher/draft.h"
#include "launcher/groups.h"
#include "launcher/notify.h"
#include "launcher/process/child.h"
#include "launcher/process/refused.h"
#include "launcher/progress.h"
#include "launcher/restarts.h"

/* NOTICE_MS: interval of log lines about a long step. LAST_MS: reserved at the end of the grace
 * time for the error events of unfinished requests, and for the shards. */
enum { NOTICE_MS = 5000, LAST_MS = 2000 };

enum stop_step { DOWNLOAD, LOADING, SERVING, RESTARTING, STOP_ROUTER, STOP_SHARDS, OVER };

/* All children in one array: [0] download, [1] router, then shard and probe of each rank of the
 * first model, then those of the groups, and last the draft model's. */
enum { CHILD_DOWNLOAD, CHILD_ROUTER, CHILD_RANKS };
enum child_role { ROLE_DOWNLOAD, ROLE_ROUTER, ROLE_SHARD, ROLE_PROBE };

struct supervisor {
    const struct plan *plan;
    struct child *children;
    uint32_t *ended;    /* children that ended in this turn */
    struct pollfd *fds; /* [0] signals, [1] the router's messages, then two per child */
    struct plan own;    /* the plan, with the channel to the router */
    struct groups groups;
    struct draft draft;
    uint32_t n, n_children, n_ready;
    uint32_t n_probes;        /* of this load that a signal ended */
    struct progress progress; /* of the loading shards */
    struct notify notify;     /* the service manager */
    struct refused refused;
    bool served; /* all shards were ready at least once, or the router has warmed them up */
    struct restarts restarts;
    uint32_t n_checked; /* sources checked so far */
    enum stop_step step;
    int64_t since, deadline, notice; /* ms; deadline and notice 0: none */
    int64_t watched;                 /* ms: the last check for frozen children */
    int64_t asked;                   /* ms: the last stop signal */
    int64_t stop_by;                 /* ms: the end of the grace time */
    bool ended_requests;             /* the router was asked to end its requests */
    int signals;                     /* number of stop signals */
    int sigfd;
    bool failed;
    int code; /* of the child that failed first; 0: none */
    struct err *err;
};

struct step_row {
    const char *name;
    void (*enter)(struct supervisor *s);
    void (*lost)(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c);
    void (*notice)(struct supervisor *s); /* every NOTICE_MS */
    void (*late)(struct supervisor *s);   /* the deadline has passed */
};

extern const struct step_row step_rows[]; /* indexed by enum stop_step */

/* Leaves the step and enters `step`, whose row may enter another at once. */
void step_go(struct supervisor *s, enum stop_step step);
/* Stops in order: the router, then the shards. No effect if already stopping. */
void step_stop(struct supervisor *s);
/* The same if the cause and the exit code are already known. */
void step_fail_code(struct supervisor *s, const char *what, const char *why, int code);
/* True if no child is left. */
bool step_all_gone(const struct supervisor *s);
void step_kill_all(struct supervisor *s);
#endif
