/* models.h - finds the model a request names, and manages loaded models: docs/decisions/
 * on-demand-models.md.
 *
 * The first model is loaded at start and stays. Models of --models-folder are loaded on request,
 * one after the other, on a thread of this module. They are unloaded when another one needs their
 * slot and no request holds them. All functions may be called on any thread. */
#ifndef ROUTER_MODELS_MODELS_H
#define ROUTER_MODELS_MODELS_H
#include "router/models/edge.h"

struct models;
struct models_wait { /* embedded in the waiting object, which must not touch it until ready() */
    struct models_wait *next;
    /* `g` is held for the waiter; NULL: failed, see `why`. Any thread; must not block. */
    void (*ready)(struct models_wait *w, struct edge *g, const struct err *why);
};

/* For --models-folder: connects to the launcher by --launcher-fd and starts the thread. `first`
 * must outlive it. */
struct models *models_new(struct edge *first, struct err *e);
/* Stops loading models; requests that wait for one are refused. */
void models_close(struct models *m);
/* Losses of shards become final (fleet_drain()). After models_close(). */
void models_drain(struct models *m);
/* Ends every request to these models with an error (fleet_fail()); `why` is static. */
void models_fail(struct models *m, const char *why);
/* Ends the thread and the schedulers; open requests get their last event. */
void models_stop(struct models *m);
/* when no request holds a model; NULL is allowed, also for the functions above */
void models_free(struct models *m);

/* Is it a name or alias of the first model? True for NULL and "". */
bool models_own_name(const struct edge *first, const char *name);
/* Does the name select the first model? True for NULL, "", its names, aliases and adapters. */
bool models_first(struct edge *first, const char *name);
/* Finds and holds the edge of a model. 1: *g is set. 0: it is being loaded, and w->ready() is, or
 * was, called. -1: ERR_NO_MODEL, ERR_UNHEALTHY. If `first->models` is NULL only the first model
 * exists. */
int models_hold(struct edge *first, const char *name, struct models_wait *w, struct edge **g,
                struct err *e);
void models_release(struct edge *g);
/* Holds the edge of a model if it is loaded; NULL: it is not. Does not load it. */
struct edge *models_peek(struct edge *first, const char *name);
/* Can this name be requested? False for the first model's. */
bool models_known(const struct models *m, const char *name);
/* Calls fn for every name that can be requested, except the first model's. */
void models_each(const struct models *m, void (*fn)(void *arg, const char *name), void *arg);
#endif
