/* policy_rig.h - a policy with its blocks and adapters, for tests: requests are added, join a step,
 * and end. */
#ifndef TESTS_UNIT_ROUTER_SCHEDULER_POLICY_RIG_H
#define TESTS_UNIT_ROUTER_SCHEDULER_POLICY_RIG_H
#include "router/scheduler/policy.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { MAX = 64, SEC = 1000000000 };
static uint32_t tokens[4096]; /* 0, 1, ...: the prompt of add() */

struct one {
    struct waiter w;
    struct kv_table t;
};

/* "two" and "also two" of two pages, "one" of one; to be released. */
static inline struct served_adapters *three(void)
{
    static const struct served_adapter listed[] = {
        {.name = "two", .pages = 2, .number = 1},
        {.name = "also two", .pages = 2, .number = 2},
        {.name = "one", .path = "/from", .pages = 1, .number = 3}};
    struct served_adapters *s = served_adapters_none(), *more;
    for (int i = 0; i < 3; i++, s = more) {
        assert_non_null(more = served_adapters_with(s, &listed[i]));
        served_adapters_release(s);
    }
    return s;
}

static inline bool init_adapters(struct adapter_accounts *b)
{
    struct served_adapters *s = three();
    const bool ok = adapters_init(b, s, 3);
    served_adapters_release(s);
    return ok;
}

struct rig {
    struct kv_blocks *kv;
    struct adapter_accounts adapters;
    struct policy p;
    struct joiner out[MAX];
    uint64_t next_order;
};

static inline void rig_init(struct rig *g, struct policy_limits l, uint32_t blocks)
{
    g->kv = kv_new(blocks + 1, 4, 1);
    assert_true(init_adapters(&g->adapters));
    policy_init(&g->p, &l, g->kv, &g->adapters);
    g->next_order = 1;
    for (uint32_t i = 0; i < 4096; i++)
        tokens[i] = i;
}

static inline void add_for(struct rig *g, struct one *o, uint32_t n_prompt, uint32_t n_reserve,
                           uint64_t tenant)
{
    *o =
        (struct one){.w = {.key = {tokens, n_prompt, 0}, .n_reserve = n_reserve, .tenant = tenant}};
    o->w.kv = &o->t;
    o->w.fair.order = g->next_order++;
    assert_true(policy_add(&g->p, &o->w));
}

static inline void add(struct rig *g, struct one *o, uint32_t n_prompt, uint32_t n_reserve)
{
    add_for(g, o, n_prompt, n_reserve, 0);
}

static inline uint32_t join(struct rig *g, struct load l, int64_t now)
{
    uint32_t n = policy_join(&g->p, &l, now, g->out, MAX);
    kv_check(g->kv);
    return n;
}

static inline void done(struct rig *g, struct one *o)
{
    kv_release(g->kv, &o->t, NULL, 0);
    policy_leaves(&g->p, &o->w);
    policy_forget(&g->p, &o->w);
}

static inline void rig_fini(struct rig *g, struct one *o, uint32_t n)
{
    for (struct waiter *w; (w = policy_any(&g->p));) {
        policy_remove(&g->p, w);
        policy_forget(&g->p, w);
    }
    for (uint32_t i = 0; i < n; i++)
        done(g, &o[i]);
    assert_int_equal(kv_stats(g->kv).used, 0);
    policy_free(&g->p);
    kv_free(g->kv);
    adapters_free(&g->adapters);
}
#endif
