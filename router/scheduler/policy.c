#include "router/scheduler/policy.h"
#include <assert.h>
#include <stddef.h>

/* Waiters examined in one step: bounds the hashing of prompts that do not fit. */
enum { MAX_SCAN = 32 };

void policy_init(struct policy *p, const struct policy_limits *l, struct kv_blocks *kv,
                 struct adapter_accounts *adapters)
{
    *p = (struct policy){.limits = *l, .kv = kv, .adapters = adapters};
    if (!p->limits.max_passed)
        p->limits.max_passed = POLICY_MAX_PASSED;
    if (!p->limits.max_passed_ns)
        p->limits.max_passed_ns = POLICY_MAX_PASSED_NS;
}

void policy_free(struct policy *p) { fair_free(&p->fair); }

static struct waiter *waiter_of(struct fair_item *it)
{
    return it ? (struct waiter *)((char *)it - offsetof(struct waiter, fair)) : NULL;
}

bool policy_add(struct policy *p, struct waiter *w)
{
    if (!w->fair.key && !fair_enter(&p->fair, &w->fair, w->tenant))
        return false;
    w->passed = 0;
    w->passed_ns = 0;
    w->tried = 0;
    w->left = 0;
    fair_wait(&p->fair, &w->fair);
    return true;
}

bool policy_outranks(const struct waiter *a, const struct waiter *b)
{
    return a->fair.priority < b->fair.priority ||
           (a->fair.priority == b->fair.priority && a->fair.order < b->fair.order);
}

void policy_return(struct policy *p, struct waiter *w)
{
    struct waiter **at = &p->returned;
    assert(!w->returned && !w->adapted && w->fair.key);
    while (*at && policy_outranks(*at, w))
        at = &(*at)->behind;
    (void)policy_add(p, w); /* cannot fail: its key already exists */
    w->passed = p->limits.max_passed;
    w->returned = true;
    w->behind = *at;
    *at = w;
}

void policy_remove(struct policy *p, struct waiter *w)
{
    struct waiter **at = &p->returned;
    fair_unwait(&p->fair, &w->fair);
    if (p->next_up == w)
        p->next_up = NULL;
    while (w->returned && *at != w) {
        assert(*at);
        at = &(*at)->behind;
    }
    if (w->returned)
        *at = w->behind;
    w->returned = false;
}

void policy_leaves(struct policy *p, struct waiter *w)
{
    if (w->adapted)
        adapters_deactivate(p->adapters, w->key.adapter);
    w->adapted = false;
}

void policy_forget(struct policy *p, struct waiter *w) { fair_leave(&p->fair, &w->fair); }

struct waiter *policy_any(const struct policy *p)
{
    for (const struct fair_key *k = p->fair.present; k; k = k->next)
        if (k->head)
            return waiter_of(k->head);
    return NULL;
}

/* Nothing was released since its last failure: another try would hash its prompt in vain. */
static bool reserve(struct policy *p, struct waiter *w)
{
    uint64_t now = kv_stats(p->kv).releases + 1;
    assert(!w->adapted && w->key.n > 0);
    if (w->tried == now)
        return false;
    if (!adapters_fit(p->adapters, w->key.adapter) || !kv_may_fit(p->kv, w->key.n, w->n_reserve) ||
        !kv_admit(p->kv, w->kv, &w->key, w->share, w->n_reserve)) {
        w->tried = now;
        return false;
    }
    adapters_activate(p->adapters, w->key.adapter);
    w->adapted = true;
    if (w->swap_to > w->kv->n_cached && w->swap_from <= w->kv->n_cached) {
        kv_copied(p->kv, w->kv); /* no copy is needed: that block is swapped in completely */
        w->kv->n_cached = w->swap_to;
    }
    return true;
}

static bool passed_enough(const struct policy *p, const struct waiter *w, int64_t now_ns)
{
    return w->passed >= p->limits.max_passed ||
           (w->passed && now_ns - w->passed_ns >= p->limits.max_passed_ns);
}

/* Counts a pass for requests that could not join and were passed by another. */
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

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

struct scan {
    uint32_t room, budget; /* requests and tokens left in this step */
    uint32_t n;
    uint64_t n_bytes; /* image bytes */
    /* prompts fill whole steps: fewest tokens left of any; 0: they do not */
    uint32_t least_started;
    bool newcomers;               /* only accounts that run nothing join */
    struct waiter *cut;           /* too long for the rest of the step: joins last */
    uint32_t n_skipped, n_passed; /* n_passed: skipped ones when the last joiner was found */
    struct waiter *skipped[MAX_SCAN];
};

/* May a prompt with `left` tokens join before the started ones finish? */
static bool may_come_between(const struct scan *s, uint32_t left)
{
    return !s->least_started || left <= s->budget || left <= s->least_started / 2;
}

static void undo(struct policy *p, struct waiter *w)
{
    assert(w->adapted); /* only the reservation is reverted */
    fair_charge(&w->fair, -(int64_t)FAIR_PROMPT_TOKEN * w->left);
    kv_undo(p->kv, w->kv);
    policy_leaves(p, w);
}

/* A prompt too long for the rest of the step, with images that stay whole: takes what fits. A
 * larger image waits until no other prompt is computed. */
static bool place_whole(struct policy *p, struct scan *s, const struct load *l, struct waiter *w,
                        struct joiner *out)
{
    const uint32_t from = w->kv->n_cached;
    uint32_t to = kv_media_stop(&w->key.media, from, from + s->budget);
    if (to == from && s->n == 0 && l->n_started == 0)
        to = kv_media_next(&w->key.media, from);
    if (to == from) {
        undo(p, w);
        return false;
    }
    out[s->n++] = (struct joiner){w, to - from, to < w->key.n};
    s->budget -= least(to - from, s->budget);
    s->n_bytes += w->n_bytes;
    s->room--;
    s->n_passed = s->n_skipped;
    return true;
}

/* Its blocks are reserved: it joins, is cut, or is put back. False: no later request joins. */
static bool place(struct policy *p, struct scan *s, const struct load *l, struct waiter *w,
                  struct joiner *out)
{
    bool alone = s->n == 0 && l->n_running == 0, chunking = p->limits.chunking;
    uint32_t now = kv_stop(p->kv, w->kv, w->key.n, w->kv->n_cached, w->awaited) - w->kv->n_cached;
    assert(s->room > 0);
    if (w->n_bytes && s->n_bytes && s->n_bytes + w->n_bytes > POLICY_MAX_BYTES) {
        undo(p, w);
        return false;
    }
    if (!w->returned && !may_come_between(s, w->left)) {
        undo(p, w);
        return true;
    }
    if (now <= s->budget || (!chunking && alone)) {
        out[s->n++] = (struct joiner){w, now, now < w->left};
        s->budget -= now < s->budget ? now : s->budget;
    } else if (!chunking || s->cut) { /* the prompt that is cut takes the rest */
        undo(p, w);
        return false;
    } else if (w->key.media.whole) {
        return place_whole(p, s, l, w, out);
    } else {
        s->cut = w;
        s->budget /= 2; /* half of it, at least one token, goes to the long prompt */
    }
    s->n_bytes += w->n_bytes;
    s->room--;
    s->n_passed = s->n_skipped;
    return true;
}

/* False: no request after `w` joins in this step. */
static bool consider(struct policy *p, struct scan *s, const struct load *l, struct waiter *w,
                     int64_t now_ns, struct joiner *out)
{
    bool first = l->n_running == 0 && s->n == 0 && !s->cut;
    kv_keep_free(p->kv, p->limits.grows && !first ? l->keep_free + s->n + !!s->cut : 0);
    if (w->left && !w->returned && !may_come_between(s, w->left))
        return true; /* as before, without hashing its prompt again */
    if (!reserve(p, w)) {
        s->skipped[s->n_skipped++] = w;
        if (!passed_enough(p, w, now_ns))
            return true;
        p->next_up = w->returned ? p->next_up : w;
        return false;
    }
    w->left = w->key.n - w->kv->n_cached;
    fair_charge(&w->fair, (int64_t)FAIR_PROMPT_TOKEN * w->left);
    return place(p, s, l, w, out);
}

/* So many requests run that only accounts without any may add one. */
static bool is_full(const struct load *l, uint32_t n_joining)
{
    return l->rows_most && l->n_running + n_joining >= l->rows_most;
}

/* Begins a scan of the queue. */
static struct fair_item *first_of(struct policy *p, const struct load *l)
{
    struct fair_item *it = fair_first(&p->fair);
    return it && is_full(l, 0) && !fair_newcomer(it) ? fair_next_newcomer(&p->fair) : it;
}

/* It is the turn of accounts that run nothing. */
static bool newcomers_turn(struct policy *p, const struct load *l)
{
    const struct fair_item *it = first_of(p, l);
    return it && l->n_running > 0 && !p->newcomers_last && fair_newcomer(it);
}

static void look(struct policy *p, struct scan *s, const struct load *l, int64_t now_ns,
                 struct joiner *out)
{
    struct fair_item *it = first_of(p, l);
    struct waiter *first = p->next_up;
    for (struct waiter *w = p->returned; w && s->room && s->budget; w = w->behind)
        if (!consider(p, s, l, w, now_ns, out))
            return;
    if (first && s->room && s->budget && !consider(p, s, l, first, now_ns, out))
        return;
    for (uint32_t n = 0; it && s->room && s->budget && n < MAX_SCAN - 1; n++) {
        struct waiter *w = waiter_of(it);
        if (s->newcomers && !fair_newcomer(it))
            return;
        if (w != first && !w->returned && !consider(p, s, l, w, now_ns, out))
            return;
        it = is_full(l, s->n + !!s->cut) ? fair_next_newcomer(&p->fair) : fair_next(&p->fair);
    }
}

/* Removes the joiners from the queue. */
static void take(struct policy *p, const struct load *l, struct joiner *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i].newcomer = l->n_running > 0 && fair_newcomer(&out[i].w->fair);
    for (uint32_t i = 0; i < n; i++) {
        fair_joins(&out[i].w->fair);
        policy_remove(p, out[i].w);
    }
}

/* Joins new prompts in a step with `budget` tokens for them. Returns the tokens used. */
static uint32_t join(struct policy *p, struct scan *s, const struct load *l, int64_t now_ns,
                     struct joiner *out)
{
    uint32_t whole = s->budget, taken = 0, least = min_joiners(p, l);
    if (!s->room || !s->budget || p->fair.n_waiting == 0 || p->fair.n_waiting < least)
        return 0;
    look(p, s, l, now_ns, out);
    for (uint32_t i = 0; i < s->n; i++)
        taken += out[i].n_tokens;
    if (s->cut) {
        assert(taken < whole); /* 0 would mean the whole prompt */
        out[s->n++] = (struct joiner){s->cut, whole - taken, true};
        taken = whole;
    }
    if (s->n < least) { /* too few to interrupt running requests: undo */
        for (uint32_t i = 0; i < s->n; i++)
            undo(p, out[i].w);
        s->n = 0;
        return 0;
    }
    take(p, l, out, s->n);
    count_passed(s->skipped, s->n_passed, now_ns);
    return taken;
}

/* Tokens it may compute in one step. */
static uint32_t one_step(const struct started *s)
{
    return s->stop && s->stop < s->left ? s->stop : s->left;
}

/* How many of `most` more tokens it can compute in this step. */
static uint32_t takes(const struct started *s, uint32_t most)
{
    assert(s->n_now <= one_step(s));
    const uint32_t n = least(one_step(s) - s->n_now, most), now = s->at + s->n_now;
    return kv_media_stop(&s->media, now, now + n) - now;
}

static void give(struct started *s, uint32_t *budget, uint32_t most)
{
    const uint32_t n = takes(s, least(most, *budget));
    s->n_now += n;
    *budget -= n;
}

/* If the oldest prompt continues with an image that stays whole, it gets the whole image, so that
 * it makes progress. Returns its tokens. */
static uint32_t give_picture(const struct load *l)
{
    struct started *s = l->started;
    const uint32_t n = l->n_started ? kv_media_next(&s->media, s->at) - s->at : 1;
    if (n > 1)
        s->n_now = least(n, one_step(s));
    return n > 1 ? s->n_now : 0;
}

/* Fewest tokens left first; a quarter goes to the oldest, so that it makes progress. */
static void share_out(const struct load *l, uint32_t budget)
{
    struct started *v = l->started;
    if (l->n_started > 0)
        give(&v[0], &budget, budget / 4 + 1);
    while (budget > 0) {
        struct started *next = NULL;
        for (uint32_t i = 0; i < l->n_started; i++)
            if (takes(&v[i], budget) > 0 && (!next || v[i].left < next->left))
                next = &v[i];
        if (!next)
            return;
        give(next, &budget, budget);
    }
}

uint32_t policy_join(struct policy *p, const struct load *l, int64_t now_ns, struct joiner *out,
                     uint32_t cap)
{
    uint32_t prefill = p->limits.prefill_tokens, batch = p->limits.batch_size;
    uint32_t budget = prefill > l->n_tokens ? prefill - l->n_tokens : 0;
    uint64_t need = 0;
    uint32_t shortest = UINT32_MAX;
    if (l->prompt_tokens)
        budget = least(budget, l->prompt_tokens);
    const bool newcomers = newcomers_turn(p, l);
    if (l->shared_tokens && !newcomers)
        budget = least(budget, l->shared_tokens);
    if (l->n_started > 0 && budget == 0)
        budget = 1; /* every prompt makes progress */
    for (uint32_t i = 0; i < l->n_started; i++) {
        l->started[i].n_now = 0;
        need += one_step(&l->started[i]);
        shortest = least(shortest, l->started[i].left);
    }
    const uint32_t picture = give_picture(l);
    need -= picture;
    budget -= least(picture, budget);
    struct scan s = {.room = cap,
                     .budget = budget - (need < budget ? (uint32_t)need : budget),
                     .newcomers = newcomers};
    if (batch)
        s.room = least(cap, batch > l->n_running ? batch - l->n_running : 0);
    if (need > budget) {
        s.budget = budget / 2;
        s.least_started = shortest;
    }
    uint32_t used = join(p, &s, l, now_ns, out), rest = budget - used;
    p->newcomers_last = s.newcomers && s.n > 0;
    if (p->newcomers_last)
        rest = least(rest, used > budget / 4 ? used : budget / 4);
    if (l->shared_tokens) /* in a step of newcomers the others make progress, no more */
        rest = least(rest, p->newcomers_last ? l->shared_tokens / 4 + 1 : l->shared_tokens);
    share_out(l, rest);
    return s.n;
}
