#include "router/models/listing.h"

struct listing {
    struct edge *first;
    void (*fn)(void *arg, const struct listed *m);
    void *arg;
};

static void on_demand(void *arg, const char *name)
{
    const struct listing *l = arg;
    struct edge *g = models_peek(l->first, name);
    l->fn(l->arg, &(struct listed){.name = name, .edge = g});
    if (g)
        models_release(g);
}

static void adapters(const struct listing *l)
{
    struct adapter_shelf *shelf = edge_closed(l->first) ? NULL : edge_adapters(l->first);
    struct served_adapters *held = shelf ? adapter_shelf_hold(shelf) : NULL;
    for (uint32_t i = 0; held && i < held->n; i++)
        if (!held->v[i].leaving)
            l->fn(l->arg, &(struct listed){held->v[i].name, l->first->model_id, l->first});
    served_adapters_release(held);
}

void listing_each(struct edge *first, void (*fn)(void *arg, const struct listed *m), void *arg)
{
    struct listing l = {first, fn, arg};
    fn(arg, &(struct listed){.name = first->model_id, .edge = first});
    adapters(&l);
    models_each(first->models, on_demand, &l);
}

bool listing_one(struct edge *first, const char *name,
                 void (*fn)(void *arg, const struct listed *m), void *arg)
{
    if (!*name)
        return false;
    if (!models_own_name(first, name) && edge_has_adapter(first, name))
        fn(arg, &(struct listed){name, first->model_id, first});
    else if (models_first(first, name))
        fn(arg, &(struct listed){.name = name, .edge = first});
    else if (models_known(first->models, name))
        on_demand(&(struct listing){first, fn, arg}, name);
    else
        return false;
    return true;
}
