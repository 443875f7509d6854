/* changes.h - loads and unloads adapters while the shards serve.
 *
 * A change is a model call like a step. It goes to all ranks between two steps, so that all see it
 * at the same point. All ranks apply it or none does: if some ranks fail, the others undo it. An
 * adapter that is being unloaded is unavailable to new requests at once. Running requests keep it;
 * the shards unload it when the last of these has ended. */
#ifndef ROUTER_SCHEDULER_CHANGES_H
#define ROUTER_SCHEDULER_CHANGES_H
#include "common/err.h"
#include "router/scheduler/adapters.h"
#include "router/shards/shards.h"

enum change_state { CHANGE_WAITING, CHANGE_SENT, CHANGE_UNDOING };

struct adapter_change {
    char *name;
    char *path; /* a folder, or a repository name in the shards' cache; NULL: unload */
    /* Called once on the scheduler thread, which returns ownership of the change. `err.kind` is
     * ERR_NONE on success. */
    void (*done)(struct adapter_change *c);
    void *arg;
    struct err err;
    /* private */
    struct adapter_change *next;
    enum change_state state;
    uint32_t number;  /* number of the adapter to unload */
    uint32_t refused; /* times the shards refused because it was in use */
    uint32_t lost;    /* times the shards were lost during this change */
    bool call_sent;   /* a call was sent since its last request ended */
};

/* Checks that a change of `list`, behind those of `pending`, can be made, and sets c->number. -1:
 * c->err says why not; `possible`: adapters are loaded and unloaded at all. */
int change_check(struct adapter_change *c, const struct served_adapters *list,
                 const struct adapter_change *pending, bool stopping, bool possible);

struct scheduler;
/* Enqueues the change and takes ownership of it until done() is called. */
void sched_change(struct scheduler *s, struct adapter_change *c);

/* The rest is private to the scheduler's files. */
/* Sends the next change that is ready. False: none. */
bool changes_turn(struct scheduler *s);
void changes_answered(struct scheduler *s); /* the call returned and no rank is lost */
/* shards were lost during the call: the change is retried once with the next ones */
void changes_lost(struct scheduler *s);
/* The list is what the new shards were given: what an unload marked since then is marked again. */
void changes_rejoined(struct scheduler *s);
/* ends every pending change with an error */
void changes_fail(struct scheduler *s, const char *why);
#endif
