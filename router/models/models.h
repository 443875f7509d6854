/* models.h - which model a request means, and the edges of all that are loaded: docs/decisions/
 * on-demand-models.md.
 *
 * The first model is there from the start and stays. Those of --models-folder come when they are
 * asked for, one after the other, on a thread of this module, and go when another one needs their
 * place and no request holds them. All functions may be called on any thread. */
#ifndef ROUTER_MODELS_MODELS_H
#define ROUTER_MODELS_MODELS_H
#include "router/models/edge.h"

struct models;
struct models_wait { /* embedded in who waits, who lets it alone until it is ready */
    struct models_wait *next;
    /* `g` is held for the waiter; NULL: `why` not. Any thread; must not block. */
    void (*ready)(struct models_wait *w, struct edge *g, const struct err *why);
};

/* Where --models-folder is given; connects to the launcher by --launcher-fd. Starts the thread.
 * `first` outlives it. */
struct models *models_new(struct edge *first, struct err *e);
/* From now on no model is loaded; requests that wait for one are refused. */
void models_close(struct models *m);
/* Shards that are lost are not waited for any more (fleet_drain()). After models_close(). */
void models_drain(struct models *m);
/* Every request to them ends with an error (fleet_fail()); `why` is static. */
void models_fail(struct models *m, const char *why);
/* Ends the thread and the schedulers: who has a request still is told so by its last event. */
void models_stop(struct models *m);
void models_free(struct models *m); /* when no request holds a model; NULL is fine, as above */

/* Is it one of the first model's own names, aliases among them? NULL and "" are. */
bool models_own_name(const struct edge *first, const char *name);
/* Does the name mean the first model? NULL and "" do, its own names, its aliases and its adapters.
 */
bool models_first(struct edge *first, const char *name);
/* Hold the edge of a model: 1: *g is it. 0: it is being loaded, w->ready() will be called, or was.
 * -1: ERR_NOT_FOUND, ERR_UNHEALTHY. `first->models` may be NULL: then there is the first model
 * alone. */
int models_hold(struct edge *first, const char *name, struct models_wait *w, struct edge **g,
                struct err *e);
void models_release(struct edge *g);
/* Is it loaded? Then hold it: for those who only look. */
struct edge *models_peek(struct edge *first, const char *name);
/* Can the name be asked for? Not the first model's. */
bool models_known(const struct models *m, const char *name);
/* Every name that can be asked for, besides the first model's. */
void models_each(const struct models *m, void (*fn)(void *arg, const char *name), void *arg);
#endif
