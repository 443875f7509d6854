/* supervise_impl.h - shared by the loop (supervise.c) and the steps (steps.c) of a launch. */
#ifndef LAUNCHER_SUPERVISE_IMPL_H
#define LAUNCHER_SUPERVISE_IMPL_H
#include "launcher/child.h"
#include "launcher/draft.h"
#include "launcher/groups.h"
#include "launcher/notify.h"
#include "launcher/progress.h"
#include "launcher/restarts.h"

/* NOTICE_MS: between two lines about a step that takes long. LAST_MS: the end of the grace time,
 * for the error events of requests that did not finish in it, and for the shards. */
enum { NOTICE_MS = 5000, LAST_MS = 2000 };

enum stop_step { DOWNLOAD, LOADING, SERVING, RESTARTING, STOP_ROUTER, STOP_SHARDS, OVER };

/* All children in one array: [0] download, [1] router, then shard and probe of each rank of the
 * first model, then those of the groups that the router asks for; last the draft model's. */
enum { CHILD_DOWNLOAD, CHILD_ROUTER, CHILD_RANKS };
enum child_role { ROLE_DOWNLOAD, ROLE_ROUTER, ROLE_SHARD, ROLE_PROBE };

struct supervisor {
    const struct plan *plan;
    struct child *children;
    uint32_t *ended;    /* in one turn */
    struct pollfd *fds; /* [0] signals, [1] the router's commands, then two for each child */
    struct plan own;    /* the plan, with the channel */
    struct groups groups;
    struct draft draft;
    uint32_t n, n_children, n_ready;
    struct progress progress; /* of the shards that load */
    struct notify notify;     /* the service manager */
    bool served;              /* once: all shards were ready */
    struct restarts restarts;
    uint32_t n_checked; /* of the plan's sources */
    enum stop_step step;
    int64_t since, deadline, notice; /* ms; deadline and notice 0: none */
    int64_t watched;                 /* ms: when frozen children were last looked for */
    int64_t asked;                   /* when we were last asked to stop */
    int64_t stop_by;                 /* the end of the grace time */
    bool hurried;                    /* the router was told to end its requests */
    int signals;                     /* how often */
    int sigfd;
    bool failed;
    struct err *err;
};

struct step_row {
    const char *name;
    void (*enter)(struct supervisor *s);
    void (*lost)(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c);
    void (*notice)(struct supervisor *s); /* every NOTICE_MS */
    void (*late)(struct supervisor *s);   /* the deadline has passed */
};

extern const struct step_row step_rows[]; /* [enum stop_step] */

/* Leave the step and enter `step`, whose row may go on to another at once. */
void step_go(struct supervisor *s, enum stop_step step);
/* Stop in order: the router, then the shards. Nothing to do where that has begun. */
void step_stop(struct supervisor *s);
/* Stop because of a failure: "WHAT: WHO CAUSE", with c's end as the cause (NULL: none). Only the
 * first failure counts: what dies afterwards dies of it. */
void step_fail(struct supervisor *s, const char *what, const char *who, const struct child *c);
/* No child is left. */
bool step_all_gone(const struct supervisor *s);
void step_kill_all(struct supervisor *s);
#endif
