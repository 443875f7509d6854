/* listing.h - the names that a request may have in `model`, for routes that list models. */
#ifndef ROUTER_MODELS_LISTING_H
#define ROUTER_MODELS_LISTING_H
#include "router/models/models.h"

struct listed {
    const char *name;
    const char *base;        /* of an adapter: its base model; NULL: a model */
    const struct edge *edge; /* NULL: a model that is not loaded */
};

/* Calls fn for the first model, its adapters, and the models that are loaded on demand, in this
 * order. What `m` points to is valid during the call. Any thread. */
void listing_each(struct edge *first, void (*fn)(void *arg, const struct listed *m), void *arg);
/* Calls fn for the model or adapter that this name selects; false: there is none. Any thread. */
bool listing_one(struct edge *first, const char *name,
                 void (*fn)(void *arg, const struct listed *m), void *arg);
#endif
