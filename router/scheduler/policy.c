#include "router/scheduler/policy.h"
#include <assert.h>

/* How many waiters are looked at in one step: bounds the hashing of prompts that do not fit. */
enum { MAX_SCAN = 32 };

void policy_init(struct policy *p, const struct policy_limits *l, struct kv_blocks *kv)
{
    *p = (struct policy){.limits = *l, .kv = kv};
    if (!p->limits.max_passed)
        p->limits.max_passed = POLICY_MAX_PASSED;
    if (!p->limits.max_passed_ns)
        p->limits.max_passed_ns = POLICY_MAX_PASSED_NS;
}

void policy_add(struct policy *p, struct waiter *w)
{
    w->passed = 0;
    w->passed_ns = 0;
    w->tried = 0;
    w->next = NULL;
    w->prev = p->tail;
    if (p->tail)
        p->tail->next = w;
    else
        p->head = w;
    p->tail = w;
    p->n_waiting++;
}

bool policy_outranks(const struct waiter *a, const struct waiter *b)
{
    return a->arrival < b->arrival;
}

void policy_return(struct policy *p, struct waiter *w)
{
    struct waiter *at = p->head;
    while (at && policy_outranks(at, w))
        at = at->next;
    policy_add(p, w);
    w->passed = p->limits.max_passed;
    if (!at)
        return;
    p->tail = w->prev; /* from the tail to before `at` */
    p->tail->next = NULL;
    w->next = at;
    w->prev = at->prev;
    *(at->prev ? &at->prev->next : &p->head) = w;
    at->prev = w;
}

void policy_remove(struct policy *p, struct waiter *w)
{
    assert(p->n_waiting > 0);
    if (w->prev)
        w->prev->next = w->next;
    else
        p->head = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        p->tail = w->prev;
    w->prev = w->next = NULL;
    p->n_waiting--;
}

/* Nothing got free since it was refused: asking again would hash its prompt for nothing. */
static bool reserve(struct policy *p, struct waiter *w)
{
    uint64_t now = kv_stats(p->kv).releases + 1;
    if (w->tried == now)
        return false;
    if (!kv_may_fit(p->kv, w->key.n, w->n_reserve) ||
        !kv_admit(p->kv, w->kv, &w->key, w->share, w->n_reserve)) {
        w->tried = now;
        return false;
    }
    if (w->swap_to > w->kv->n_cached && w->swap_from <= w->kv->n_cached) {
        kv_copied(p->kv, w->kv); /* needless: that block comes back whole */
        w->kv->n_cached = w->swap_to;
    }
    return true;
}

static bool passed_enough(const struct policy *p, const struct waiter *w, int64_t now_ns)
{
    return w->passed >= p->limits.max_passed ||
           (w->passed && now_ns - w->passed_ns >= p->limits.max_passed_ns);
}

/* Everybody older than the newest who joined, and still waiting, was passed. */
static void count_passed(struct waiter *const *skipped, uint32_t n, int64_t now_ns)
{
    for (uint32_t i = 0; i < n; i++)
        if (skipped[i]->passed++ == 0)
            skipped[i]->passed_ns = now_ns;
}

static uint32_t min_joiners(const struct policy *p, const struct load *l)
{
    if (p->limits.chunking || l->n_running == 0 ||
        l->steps_since_join >= p->limits.max_waiting_tokens)
        return 0;
    return (uint32_t)(l->n_running * p->limits.waiting_served_ratio);
}

struct scan {
    uint32_t room, budget; /* requests and tokens left in this step */
    uint32_t n;
    struct waiter *cut;           /* too long for the rest of the step: joins last */
    uint32_t n_skipped, n_passed; /* n_passed: of the skipped, older than a joiner */
    struct waiter *skipped[MAX_SCAN];
};

/* False: nobody behind `w` joins in this step. */
static bool consider(struct policy *p, struct scan *s, const struct load *l, struct waiter *w,
                     int64_t now_ns, struct joiner *out)
{
    bool first = l->n_running == 0 && s->n == 0 && !s->cut;
    kv_keep_free(p->kv, p->limits.grows && !first ? l->keep_free + s->n + !!s->cut : 0);
    if (!reserve(p, w)) {
        s->skipped[s->n_skipped++] = w;
        return !passed_enough(p, w, now_ns);
    }
    uint32_t left = w->key.n - w->kv->n_cached;
    bool alone = s->n == 0 && l->n_running == 0;
    if (left <= s->budget || (!p->limits.chunking && alone)) {
        out[s->n++] = (struct joiner){w, left, false};
        s->budget -= left < s->budget ? left : s->budget;
        s->room--;
        s->n_passed = s->n_skipped;
        return true;
    }
    if (!p->limits.chunking || s->cut) { /* the one that is cut takes what is left */
        kv_undo(p->kv, w->kv);
        return false;
    }
    s->cut = w;
    s->room--;
    s->n_passed = s->n_skipped;
    s->budget -= s->budget / 2; /* half of it is the long prompt's, whatever comes behind */
    return true;
}

uint32_t policy_join(struct policy *p, const struct load *l, int64_t now_ns, struct joiner *out,
                     uint32_t cap)
{
    uint32_t prefill = p->limits.prefill_tokens;
    struct scan s = {.room = cap, .budget = prefill > l->n_tokens ? prefill - l->n_tokens : 0};

    if (p->limits.batch_size) {
        uint32_t free =
            p->limits.batch_size > l->n_running ? p->limits.batch_size - l->n_running : 0;
        s.room = free < s.room ? free : s.room;
    }
    uint32_t whole = s.budget, scanned = 0, least = min_joiners(p, l);
    if (p->n_waiting < least)
        return 0;
    for (struct waiter *w = p->head; w && s.room && s.budget && scanned < MAX_SCAN;
         w = w->next, scanned++)
        if (!consider(p, &s, l, w, now_ns, out))
            break;
    if (s.cut) {
        uint32_t taken = 0;
        for (uint32_t i = 0; i < s.n; i++)
            taken += out[i].n_tokens;
        out[s.n++] = (struct joiner){s.cut, whole - taken, true};
    }
    if (s.n < least) { /* not worth stopping the others: as if nobody had asked */
        for (uint32_t i = 0; i < s.n; i++)
            kv_undo(p->kv, out[i].w->kv);
        return 0;
    }
    for (uint32_t i = 0; i < s.n; i++)
        policy_remove(p, out[i].w);
    count_passed(s.skipped, s.n_passed, now_ns);
    return s.n;
}
