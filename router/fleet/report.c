/* Status of a fleet of several replicas, for operators and gauges. */
#include "router/fleet/impl.h"
#include <string.h>

static const char *const roles[] = {[REPLICA_BOTH] = "both"};

struct infer_stats fleet_stats(struct fleet *f)
{
    struct infer_stats sum = {0};
    if (f->only)
        return infer_stats(f->only);
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct replica *p = f->v[i];
        const struct infer_stats s = p->infer ? infer_stats(p->infer) : (struct infer_stats){0};
        sum.queued += s.queued;
        sum.running += s.running;
        sum.blocks_total += s.blocks_total;
        sum.blocks_used += s.blocks_used;
        sum.blocks_cached += s.blocks_cached;
        sum.swap_used += s.swap_used;
        sum.cells_used += s.cells_used;
        sum.call_ns = s.call_ns > sum.call_ns ? s.call_ns : sum.call_ns;
    }
    sum.queued += f->fair.n_waiting + f->n_returned + f->n_texts;
    pthread_mutex_unlock(&f->lock);
    return sum;
}

void fleet_each(struct fleet *f, void (*fn)(void *arg, const struct replica_view *v), void *arg)
{
    if (f->only)
        return;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct replica *p = f->v[i];
        const struct replica_view v = {.name = p->target,
                                       .state = replica_state(p),
                                       .role = roles[p->role],
                                       .ready = replica_ready(p),
                                       .sent = p->n_sent,
                                       .shared = p->n_shared,
                                       .stats = p->infer ? infer_stats(p->infer)
                                                         : (struct infer_stats){0}};
        fn(arg, &v);
    }
    pthread_mutex_unlock(&f->lock);
}

void fleet_each_adapter(struct fleet *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg)
{
    const struct adapter_use waits = {.known = 1};
    if (fleet_limits(f)->task > TASK_GENERATE)
        return;
    if (f->only) {
        adapter_shelf_each(infer_adapters(f->only), fn, arg);
        return;
    }
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->v[i]->infer)
            adapter_shelf_each(infer_adapters(f->v[i]->infer), fn, arg);
    for (struct fair_item *it = fair_first(&f->fair); it; it = fair_next(&f->fair)) {
        const char *name = CONTAINER_OF(it, struct fleet_entry, fair)->r->params.adapter_id;
        if (name && *name)
            fn(arg, name, &waits);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Takes a reference to the n-th replica's scheduler; false: n is too large. */
static bool hold(struct fleet *f, uint32_t n, struct replica **p, struct infer **i, struct buf *out)
{
    pthread_mutex_lock(&f->lock);
    bool there = n < f->n;
    if (there) {
        *p = f->v[n];
        *i = (*p)->infer;
        (*p)->users += *i != NULL;
        buf_fmt(out, "%s{\"name\":", n ? "," : "");
        buf_json_str(out, (*p)->target, strlen((*p)->target));
        buf_fmt(out, ",\"state\":\"%s\",\"requests\":%u,\"scheduler\":", replica_state(*p),
                (*p)->n_waiting + (*p)->n_running);
    }
    pthread_mutex_unlock(&f->lock);
    return there;
}

static void let_go(struct replica *p)
{
    pthread_mutex_lock(&p->fleet->lock);
    p->users--;
    pthread_cond_signal(&p->turn);
    pthread_mutex_unlock(&p->fleet->lock);
}

int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e)
{
    struct replica *p;
    struct infer *i;
    bool balanced = true, one_is;
    if (f->only)
        return infer_audit(f->only, ms, out, &balanced, e);
    buf_str(out, "{\"replicas\":[");
    for (uint32_t n = 0; hold(f, n, &p, &i, out); n++) {
        if (i && infer_audit(i, ms, out, &one_is, e) == 0)
            balanced &= one_is;
        else
            buf_str(out, "null");
        buf_ch(out, '}');
        if (i)
            let_go(p);
    }
    pthread_mutex_lock(&f->lock);
    buf_fmt(out, "],\"queued\":%u,\"balanced\":%s}", f->fair.n_waiting + f->n_returned + f->n_texts,
            balanced ? "true" : "false");
    pthread_mutex_unlock(&f->lock);
    return 0;
}
