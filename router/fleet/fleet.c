#include "router/fleet/fleet.h"
#include <stdlib.h>

struct fleet {
    struct infer *only;
};

struct fleet *fleet_start(const struct fleet_config *c, struct err *e)
{
    struct fleet *f = calloc(1, sizeof(*f));
    struct infer_config one = c->infer;
    if (!f)
        return err_nomem(e), NULL;
    one.shard_target = c->targets[0];
    if ((f->only = infer_start(&one, e)))
        return f;
    free(f);
    return NULL;
}

void fleet_stop(struct fleet *f)
{
    if (!f)
        return;
    infer_stop(f->only);
    free(f);
}

const struct infer_limits *fleet_limits(const struct fleet *f) { return infer_limits(f->only); }
void fleet_submit(struct fleet *f, struct gen_request *r) { infer_submit(f->only, r); }
void fleet_cancel(struct fleet *f, struct gen_request *r) { infer_cancel(f->only, r); }
void fleet_embed(struct fleet *f, struct embed_job *j) { infer_embed(f->only, j); }
bool fleet_healthy(struct fleet *f) { return infer_healthy(f->only); }
void fleet_on_lost(struct fleet *f, void (*fn)(void *arg, const char *why), void *arg)
{
    infer_on_lost(f->only, fn, arg);
}
void fleet_drain(struct fleet *f, const char *why) { infer_drain(f->only, why); }
void fleet_fail(struct fleet *f, const char *why) { infer_fail(f->only, why); }
struct infer_stats fleet_stats(struct fleet *f) { return infer_stats(f->only); }
int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e)
{
    return infer_audit(f->only, ms, out, e);
}
struct adapter_shelf *fleet_adapters(const struct fleet *f) { return infer_adapters(f->only); }
void fleet_change(struct fleet *f, struct adapter_change *c) { infer_change(f->only, c); }
