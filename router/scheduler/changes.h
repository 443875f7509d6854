/* changes.h - adapters that are loaded and unloaded while the shards serve.
 *
 * A change is a model call like a step: it goes to all ranks between two steps, so that all of them
 * see it in the same place. All ranks do it or none: what some of them could not do, the others
 * undo. An adapter that is to be unloaded is at once not there for new requests; those that know it
 * go on, and the shards are told when the last one has ended. */
#ifndef ROUTER_SCHEDULER_CHANGES_H
#define ROUTER_SCHEDULER_CHANGES_H
#include "common/err.h"
#include "router/scheduler/adapters.h"
#include "router/shards/shards.h"

enum change_state { CHANGE_WAITING, CHANGE_SENT, CHANGE_UNDOING };

struct adapter_change {
    char *name;
    char *path; /* folder, or name of a repository in the shards' cache; NULL: unload */
    /* Scheduler's thread, once; then the change is the callee's again. `err.kind` ERR_NONE: it is
     * done. */
    void (*done)(struct adapter_change *c);
    void *arg;
    struct err err;
    /* private */
    struct adapter_change *next;
    enum change_state state;
    uint32_t number;  /* of the adapter that leaves */
    uint32_t refused; /* times that the shards said that it is in use */
    uint32_t lost;    /* times that shards were lost over it */
    bool told;        /* a call has gone to the shards since its last request ended */
};

struct scheduler;
/* Takes the change over. */
void sched_change(struct scheduler *s, struct adapter_change *c);

/* The rest is for the scheduler's files. */
/* Send the next change that can be sent. False: none. */
bool changes_turn(struct scheduler *s);
void changes_answered(struct scheduler *s); /* the call is back, and no rank is lost */
void changes_lost(struct scheduler *s);     /* shards are: it is tried again with others, once */
void changes_fail(struct scheduler *s, const char *why); /* all that were not done */
/* The link's thread: what was loaded at run time, loaded again into shards that came back; what
 * was unloaded, unloaded. `*out`: the list of those that are there, to be released. -1: a shard
 * is lost. */
int changes_repeat(struct served_adapters *list, const struct served_adapters *theirs,
                   struct shards *of, struct served_adapters **out, struct err *e);
#endif
