/* Changes of adapters at replicas that refuse some of them. The replicas' schedulers are scripted:
 * -Wl,--wrap replaces infer_change() and infer_adapters(). */
#include "common/thread/cond.h"
#include "router/fleet/impl.h"
#include "tests/unit/test.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKES = 2 };

struct infer { /* a replica's scheduler */
    struct adapter_shelf shelf;
    uint32_t next_number;
    uint32_t refusals; /* how many of the next changes fail */
    uint32_t n_changes;
    bool holds; /* the next change waits in `held` */
    _Atomic(struct adapter_change *) held;
};

struct adapter_shelf *__wrap_infer_adapters(const struct infer *i);
void __wrap_infer_change(struct infer *i, struct adapter_change *c);

struct adapter_shelf *__wrap_infer_adapters(const struct infer *i)
{
    return &((struct infer *)(uintptr_t)i)->shelf;
}

static void put(struct infer *i, struct served_adapters *list)
{
    assert_non_null(list);
    adapter_shelf_put(&i->shelf, list);
    served_adapters_release(list);
}

static void apply(struct infer *i, const struct adapter_change *c)
{
    struct served_adapters *now = adapter_shelf_hold(&i->shelf);
    const struct served_adapter *a = served_adapters_find(now, c->name);
    const struct served_adapter more = {.name = c->name, .path = c->path, .number = i->next_number};
    if (c->path)
        put(i, served_adapters_with(now, &more)), i->next_number++;
    else
        put(i, served_adapters_without(now, a->number));
    served_adapters_release(now);
}

void __wrap_infer_change(struct infer *i, struct adapter_change *c)
{
    const struct adapter_change *held = i->held;
    i->n_changes++;
    if (i->holds) {
        i->holds = false;
        i->held = c;
        return;
    }
    if (held && strcmp(held->name, c->name) == 0) { /* as change_check() */
        err_set(&c->err, ERR_VALIDATION, "it is being changed");
    } else if (i->refusals) {
        i->refusals--;
        err_set(&c->err, ERR_OVERLOADED, "in use");
    } else {
        apply(i, c);
    }
    c->done(c);
}

struct rig {
    struct fleet fleet;
    struct replica replica[FAKES];
    struct infer infer[FAKES];
    struct adapter_change change;
    bool done;
};

/* A fleet without adapters, and ready replicas without threads. */
static struct rig *rig_new(void)
{
    struct rig *g = calloc(1, sizeof(*g));
    struct served_adapters *none = served_adapters_none();
    struct fleet *f = &g->fleet;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->adapting, NULL);
    cond_init(&f->changed);
    adapter_shelf_init(&f->adapters);
    assert_true(adapters_init(&f->uses, none, 0));
    for (uint32_t i = 0; i < FAKES; i++) {
        struct replica *p = f->v[f->n++] = &g->replica[i];
        *p = (struct replica){.fleet = f, .up = true, .wanted = true, .infer = &g->infer[i]};
        cond_init(&p->turn);
        adapter_shelf_init(&g->infer[i].shelf);
        adapter_shelf_put(&g->infer[i].shelf, none);
        g->infer[i].next_number = 1;
    }
    served_adapters_release(none);
    assert_int_equal(pthread_create(&f->adapt, NULL, fleet_adapt, f), 0);
    f->adapts = true;
    return g;
}

static void rig_free(struct rig *g)
{
    struct fleet *f = &g->fleet;
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->adapt, NULL);
    for (uint32_t i = 0; i < FAKES; i++) {
        adapter_shelf_fini(&g->infer[i].shelf);
        pthread_cond_destroy(&g->replica[i].turn);
    }
    adapters_free(&f->uses);
    adapter_shelf_fini(&f->adapters);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->adapting);
    pthread_mutex_destroy(&f->lock);
    free(g);
}

static void on_done(struct adapter_change *c)
{
    struct rig *g = c->arg;
    pthread_mutex_lock(&g->fleet.lock);
    g->done = true;
    pthread_cond_broadcast(&g->fleet.changed);
    pthread_mutex_unlock(&g->fleet.lock);
}

static void begin(struct rig *g, char *name, char *path)
{
    g->done = false;
    g->change = (struct adapter_change){.name = name, .path = path, .done = on_done, .arg = g};
    fleet_change(&g->fleet, &g->change);
}

static struct err await(struct rig *g)
{
    pthread_mutex_lock(&g->fleet.lock);
    while (!g->done)
        pthread_cond_wait(&g->fleet.changed, &g->fleet.lock);
    pthread_mutex_unlock(&g->fleet.lock);
    return g->change.err;
}

/* Loads (`path`) or unloads at all, and returns the result. */
static struct err change(struct rig *g, char *name, char *path)
{
    begin(g, name, path);
    return await(g);
}

static void set_up(struct rig *g, uint32_t i, bool up)
{
    pthread_mutex_lock(&g->fleet.lock);
    g->replica[i].up = up;
    pthread_cond_broadcast(&g->fleet.changed);
    pthread_mutex_unlock(&g->fleet.lock);
}

static uint32_t n_with(struct rig *g, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < FAKES; i++)
        n += adapter_shelf_has(&g->infer[i].shelf, name);
    return n;
}

TEST(all_have_it_or_none)
{
    struct rig *g = rig_new();
    assert_int_equal(change(g, "a", "/a").kind, ERR_NONE);
    assert_int_equal(n_with(g, "a"), FAKES);
    g->infer[1].refusals = 1;
    const struct err e = change(g, "b", "/b");
    assert_int_equal(e.kind, ERR_OVERLOADED);
    assert_string_equal(e.msg, "in use");
    assert_int_equal(n_with(g, "b"), 0);
    assert_false(adapter_shelf_has(&g->fleet.adapters, "b"));
    assert_int_equal(change(g, "a", NULL).kind, ERR_NONE);
    assert_int_equal(n_with(g, "a"), 0);
    rig_free(g);
}

/* A replica has an adapter too many, and refuses at first to unload it. The change that comes then
 * is made all the same. */
TEST(an_attempt_that_was_repeated_is_no_failure)
{
    struct rig *g = rig_new();
    const struct adapter_change old = {.name = "old", .path = "/old"};
    apply(&g->infer[0], &old);
    g->infer[0].refusals = 1;
    const struct err e = change(g, "a", "/a");
    assert_string_equal(e.msg, "");
    assert_int_equal(e.kind, ERR_NONE);
    assert_int_equal(n_with(g, "old"), 0);
    assert_int_equal(n_with(g, "a"), FAKES);
    assert_true(adapter_shelf_has(&g->fleet.adapters, "a"));
    assert_int_equal(g->infer[0].n_changes, 3);
    rig_free(g);
}

/* A load is given up at a replica that loses its shards, and is made when these are back, after the
 * fleet has given it up altogether. The same load comes again meanwhile. */
TEST(what_was_left_at_a_lost_replica_is_awaited)
{
    struct rig *g = rig_new();
    struct infer *first = &g->infer[0];
    first->holds = true;
    g->infer[1].refusals = 1;
    begin(g, "a", "/a");
    while (!first->held)
        usleep(1000);
    set_up(g, 0, false);
    assert_int_equal(await(g).kind, ERR_OVERLOADED);
    set_up(g, 0, true);
    begin(g, "a", "/a");
    usleep(100000);
    struct adapter_change *left = first->held;
    first->held = NULL;
    apply(first, left);
    left->done(left);
    const struct err e = await(g);
    assert_string_equal(e.msg, "");
    assert_int_equal(n_with(g, "a"), FAKES);
    assert_int_equal(g->replica[0].n_left, 0);
    rig_free(g);
}

int main(void) { return tests_run(NULL, NULL); }
