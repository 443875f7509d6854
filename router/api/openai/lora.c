#include "router/api/openai/lora.h"
#include "router/body/body.h"

/* Scheduler thread. */
static void on_changed(struct adapter_change *change)
{
    struct call *c = change->arg;
    workers_submit(edge_home(c->edge)->workers, &c->job);
}

/* An adapter is a path on this machine and affects all clients. */
static int may_change(const struct call *c, struct err *e)
{
    const struct edge *g = c->edge;
    if (!edge_limits(g)->runtime_adapters)
        return err_set(e, ERR_NOT_FOUND,
                       "adapters are not loaded and unloaded here: see --max-runtime-adapters");
    if (!g->has_keys && !c->local)
        return err_set(e, ERR_NOT_FOUND,
                       "adapters are loaded and unloaded from this machine alone; with --api-key, "
                       "by those who have one");
    return 0;
}

static int parse(struct call *c, bool load, struct adapter_change *change, struct err *e)
{
    struct body b = {.plain = true};
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    const struct object root = body_root(&b);
    change->name = (char *)body_str(&b, root, "lora_name", false);
    change->path = load ? (char *)body_str(&b, root, "lora_path", false) : NULL;
    const bool in_place = load && body_opt_bool(&b, root, "load_inplace", false);
    if (b.failed)
        return -1;
    if (load && (!change->name || !*change->name || !change->path || !*change->path))
        return err_set(e, ERR_VALIDATION, "Both 'lora_name' and 'lora_path' must be provided.");
    if (!load && (!change->name || !*change->name))
        return err_set(e, ERR_VALIDATION, "'lora_name' needs to be provided to unload an adapter.");
    if (in_place)
        return err_set(e, ERR_VALIDATION,
                       "`load_inplace` is not supported: unload the adapter first");
    if (load && models_known(c->edge->models, change->name))
        return err_set(e, ERR_VALIDATION, "`lora_name`: a model is called `%.200s`", change->name);
    if (load && models_own_name(c->edge, change->name))
        return err_set(e, ERR_VALIDATION, "`lora_name`: the model itself is called `%.200s`",
                       change->name);
    return 0;
}

int lora_change(struct call *c, bool load, struct err *e)
{
    struct adapter_change *change = c->state;
    if (!change) {
        if (!(change = ARENA_NEW(&c->arena, struct adapter_change, 1)))
            return err_nomem(e);
        *change = (struct adapter_change){.done = on_changed, .arg = c};
        if (may_change(c, e) != 0 || parse(c, load, change, e) != 0)
            return -1;
        c->state = change;
        fleet_change(atomic_load(&c->edge->fleet), change);
        return CALL_LATER;
    }
    if (change->err.kind != ERR_NONE) {
        *e = change->err;
        return -1;
    }
    buf_fmt(&c->out, "Success: LoRA adapter '%s' %s successfully.", change->name,
            load ? "added" : "removed");
    c->type = "text/plain; charset=utf-8";
    return 0;
}
