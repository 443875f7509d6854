/* Window blocks of a sequence: which it needs, and when it releases them. */
#include "router/scheduler/kv/impl.h"
#include <assert.h>

/* Window blocks are allocated for partly covered blocks at both ends, and one more is kept before
 * the window. So a prompt that resumes a few tokens before a sequence's end finds its window. */
enum { KEPT = 1, BEYOND = 2 + KEPT };

bool kv_windowed(struct kv_blocks *kv, uint32_t n_windows, uint32_t window, uint32_t chunk)
{
    kv->window = window;
    kv->window_chunk = chunk;
    return (kv->windows = windows_new(n_windows, kv->n)) != NULL;
}

struct windows *kv_windows(const struct kv_blocks *kv) { return kv->windows; }

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The first block that the token after `n` others attends to. */
static uint32_t first_seen(const struct kv_blocks *kv, uint32_t n)
{
    return n + 1 > kv->window ? (n + 1 - kv->window) / kv->block_tokens : 0;
}

/* Window blocks that a sequence needs while it runs, for any length. */
static uint32_t one_window(const struct kv_blocks *kv)
{
    return kv->window / kv->block_tokens + BEYOND;
}

static uint32_t blocks_of(const struct kv_blocks *kv, uint32_t tokens)
{
    return (uint32_t)(((uint64_t)tokens + kv->block_tokens - 1) / kv->block_tokens);
}

bool kv_window_could_fit(const struct kv_blocks *kv, uint32_t n)
{
    return windows_stats(kv->windows).total >= smaller(blocks_of(kv, n), one_window(kv));
}

bool kv_pictures_could_fit(const struct kv_blocks *kv, const struct kv_media *m)
{
    uint32_t most = kv->windows ? m->prefix : 0;
    for (uint32_t i = 0; kv->windows && m->whole && i < m->n; i++)
        most = m->v[i].n > most ? m->v[i].n : most;
    return most == 0 ||
           windows_stats(kv->windows).total >= one_window(kv) + blocks_of(kv, most) + 1;
}

/* ------------------------------------------------------------------ where a hit ends */
bool kv_window_there(const struct kv_blocks *kv, uint32_t id)
{
    return windows_of(kv->windows, id) && windows_filled(kv->windows, id) >= kv->b[id].fill;
}

bool kv_window_whole(const struct kv_blocks *kv, uint32_t run, uint32_t full, uint32_t n)
{
    return first_seen(kv, full * kv->block_tokens + n) + run >= full;
}

/* ------------------------------------------------------------------ admission */
/* Range for a sequence that resumes after n_cached tokens and needs `need` blocks in all. */
static struct window_range at_first(const struct kv_blocks *kv, const struct kv_media *media,
                                    uint32_t n_cached, uint32_t need)
{
    const uint32_t from = first_seen(kv, n_cached);
    /* an image that stays whole is more than one token */
    const uint32_t step = blocks_of(kv, kv_media_next(media, n_cached));
    const uint32_t to = from + one_window(kv);
    return (struct window_range){from, smaller(need, to > step ? to : step)};
}

bool kv_window_room_for(const struct kv_blocks *kv, const struct kv_table *t,
                        const struct window_need *x)
{
    const struct window_range r = at_first(kv, x->media, x->n_cached, x->need);
    uint32_t taken = x->copied && windows_cached(kv->windows, x->copied);
    for (uint32_t i = r.from; i < r.to; i++) /* blocks in use are shared and cost nothing */
        taken += i >= x->known || !windows_of(kv->windows, t->ids[i]) ||
                 windows_cached(kv->windows, t->ids[i]);
    return windows_room(kv->windows) >= taken + kv->keep_free;
}

static void hold_next(struct kv_blocks *kv, struct kv_table *t)
{
    const uint32_t id = t->ids[t->windows_to];
    t->windows[t->windows_to++] =
        windows_of(kv->windows, id) ? windows_hold(kv->windows, id) : windows_take(kv->windows, id);
}

void kv_window_admit(struct kv_blocks *kv, struct kv_table *t, uint32_t n_known)
{
    const struct window_range r = at_first(kv, &t->media, t->n_cached, t->len);
    if (t->copy_from)
        t->window_copy = windows_hold(kv->windows, t->copy_from);
    t->windows_from = t->windows_to = r.from;
    while (t->windows_to < r.to)
        hold_next(kv, t);
    kv_window_grow(kv, t, smaller(n_known, t->n_cached + kv->window_chunk), kv->keep_free);
}

/* ------------------------------------------------------------------ while it runs */
bool kv_window_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n, uint32_t spare)
{
    const uint32_t need = blocks_of(kv, n);
    assert(need <= t->len);
    while (t->windows_to < need && windows_room(kv->windows) > spare)
        hold_next(kv, t);
    return t->windows_to >= need;
}

void kv_window_note(struct kv_blocks *kv, const struct kv_table *t, uint32_t n)
{
    const uint32_t bt = kv->block_tokens;
    for (uint32_t i = t->windows_from; i < t->windows_to && n > i * bt; i++)
        windows_fill(kv->windows, t->ids[i], smaller(n - i * bt, bt));
}

/* Stays cached if it is indexed and all indexed tokens were computed. */
static void let_go(struct kv_blocks *kv, uint32_t id, bool warm)
{
    const bool keep = kv->b[id].indexed && kv_window_there(kv, id);
    windows_release(kv->windows, id, !keep ? WINDOWS_FREE : warm ? WINDOWS_WARM : WINDOWS_COLD);
}

void kv_window_pass(struct kv_blocks *kv, struct kv_table *t, uint32_t n)
{
    const uint32_t seen = smaller(first_seen(kv, n), t->windows_to);
    const uint32_t from = seen > KEPT ? seen - KEPT : 0;
    if (from <= t->windows_from)
        return;
    kv_window_note(kv, t, n);
    for (uint32_t i = t->windows_from; i < from; i++) {
        /* other prompts may diverge where this one diverged */
        const bool parted =
            i >= first_seen(kv, t->n_matched) && i * kv->block_tokens < t->n_matched;
        let_go(kv, t->ids[i], parted);
    }
    t->windows_from = from;
    kv->st.releases += kv->window_short; /* a request that did not fit may fit now */
    kv->window_short = false;
}

bool kv_window_jump(struct kv_blocks *kv, struct kv_table *t, uint32_t n)
{
    for (uint32_t i = t->windows_from; i < t->windows_to; i++)
        let_go(kv, t->ids[i], true);
    t->windows_from = t->windows_to = first_seen(kv, n);
    return kv_window_grow(kv, t, n, kv->keep_free);
}

void kv_window_replace(struct kv_blocks *kv, struct kv_table *t, uint32_t i, uint32_t same)
{
    if (i < t->windows_from || i >= t->windows_to)
        return;
    if (!windows_of(kv->windows, same) && windows_holds(kv->windows, t->ids[i]) == 1) {
        windows_move(kv->windows, t->ids[i], same);
        return;
    }
    windows_release(kv->windows, t->ids[i], WINDOWS_FREE);
    t->windows[i] = 0;
}

void kv_window_copied(struct kv_blocks *kv, struct kv_table *t)
{
    if (t->window_copy)
        let_go(kv, t->copy_from, true);
    t->window_copy = 0;
}

void kv_window_release(struct kv_blocks *kv, struct kv_table *t)
{
    for (uint32_t i = t->windows_from; i < t->windows_to; i++)
        if (t->windows[i]) /* it was not replaced */
            let_go(kv, t->ids[i], true);
    t->windows_from = t->windows_to = 0;
}

/* ------------------------------------------------------------------ invariants */
void kv_window_check(const struct kv_blocks *kv)
{
    windows_check(kv->windows);
    for (uint32_t id = 0; id < kv->n; id++)
        if (windows_cached(kv->windows, id))
            assert(kv->b[id].indexed && kv_window_there(kv, id));
}
