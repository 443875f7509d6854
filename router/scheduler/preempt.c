/* On-demand block allocation: which sequence grows, which is preempted, how it resumes.
 *
 * All changes go to the shards with the next step, which applies them first, in the order of
 * `struct edits`. A request that leaves frees its blocks at once: the next owner writes them after
 * that. */
#include "common/clock.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ what the next call carries */
static bool list_room(struct u32_list *l, uint32_t more)
{
    if (l->n + more <= l->cap)
        return true;
    uint32_t cap = l->n + more > 2 * l->cap ? l->n + more : 2 * l->cap;
    uint32_t *p = realloc(l->v, cap * sizeof(*p));
    if (!p)
        return false;
    l->v = p;
    l->cap = cap;
    return true;
}

static void moves_reset(struct moves *m) { m->blocks.n = m->slots.n = 0; }

static bool moves_room(struct moves *m, uint32_t more)
{
    return list_room(&m->blocks, more) && list_room(&m->slots, more);
}

static void moves_put(struct moves *m, uint32_t block, uint32_t slot)
{
    /* guaranteed by moves_room() */
    assert(m->blocks.n < m->blocks.cap && m->slots.n < m->slots.cap);
    m->blocks.v[m->blocks.n++] = block;
    m->slots.v[m->slots.n++] = slot;
}

void preempt_free(struct scheduler *s)
{
    struct u32_list *all[] = {&s->out_moves.blocks, &s->out_moves.slots, &s->in_moves.blocks,
                              &s->in_moves.slots};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]->v);
    free(s->leave);
    free(s->saves);
    swap_fini(&s->swap);
}

static struct wire_moves wire_of(const struct moves *m)
{
    return (struct wire_moves){m->blocks.v, m->slots.v, m->blocks.n};
}

/* Adds the draft tokens found since the last step. */
static bool add_drafts(struct scheduler *s, struct wire_edits *x)
{
    x->drafting = s->drafts && s->drafts->active(s->drafts->self);
    if (!x->drafting)
        return true;
    struct wire_draft *v = RPC_NEW(&s->out, struct wire_draft, s->n_running + 1);
    for (uint32_t i = 0; v && i < s->n_running; i++) {
        struct wire_draft *d = &v[x->n_drafts];
        d->q = s->running[i];
        d->ids = s->drafts->offer(s->drafts->self, d->q, &d->n);
        x->n_drafts += d->ids != NULL;
    }
    x->drafts = v;
    return v != NULL;
}

const struct wire_edits *preempt_edits(struct scheduler *s, struct wire_edits *x)
{
    struct seq **grown = NULL;
    uint32_t n_saves = 0;
    for (uint32_t i = 0; i < s->n_saves; i++) /* another request may have taken that cell since */
        if (cells_pending(kv_cells(s->kv), s->saves[i].cell))
            s->saves[n_saves++] = s->saves[i];
    s->n_saves = n_saves;
    *x = (struct wire_edits){.leave = s->leave,
                             .n_leave = s->n_leave,
                             .saves = s->saves,
                             .n_saves = s->n_saves,
                             .out = wire_of(&s->out_moves),
                             .in = wire_of(&s->in_moves)};
    for (uint32_t i = 0; s->grows && i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (q->n_blocks_sent == q->kv.len && q->n_windows_sent == q->kv.windows_to)
            continue;
        if (!grown && !(grown = RPC_NEW(&s->out, struct seq *, s->n_running)))
            return NULL;
        grown[x->n_grown++] = q;
    }
    x->grown = grown;
    return add_drafts(s, x) ? x : NULL;
}

void preempt_edits_done(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        s->running[i]->n_blocks_sent = s->running[i]->kv.len;
        s->running[i]->n_windows_sent = s->running[i]->kv.windows_to;
    }
    if (kv_cells(s->kv))
        cells_saved(kv_cells(s->kv));
}

void preempt_edits_sent(struct scheduler *s)
{
    s->n_leave = s->n_saves = 0;
    moves_reset(&s->out_moves);
    moves_reset(&s->in_moves);
}

/* ------------------------------------------------------------------ the swap region */
void preempt_drop_swap(struct scheduler *s, struct seq *q)
{
    swap_give(&s->swap, q->slots, q->n_slots);
    free(q->slots);
    q->slots = NULL;
    q->n_slots = 0;
    q->waiter.swap_from = q->waiter.swap_to = 0;
}

void preempt_forget_swap(struct scheduler *s)
{
    if (swap_used(&s->swap) == 0)
        return;
    for (size_t i = 0; i < sizeof(s->known.bucket) / sizeof(s->known.bucket[0]); i++)
        for (struct seq *q = s->known.bucket[i]; q; q = q->chain)
            preempt_drop_swap(s, q);
    moves_reset(&s->out_moves);
}

/* Is moving blocks out and in cheaper than recomputing them? */
static bool swap_is_cheaper(const struct scheduler *s, uint32_t blocks, uint32_t tokens)
{
    return 2.0 * blocks * (double)s->o.model.swap_block_ns < s->token_ns * tokens;
}

/* Copies the computed blocks of `q` that it does not share to the swap region. False: they will be
 * recomputed. */
static bool swap_out(struct scheduler *s, struct seq *q)
{
    uint32_t bt = s->peer.block_size, from = kv_shared(s->kv, &q->kv);
    uint32_t end = (q->n_computed + bt - 1) / bt;
    uint32_t n = end > from ? end - from : 0;
    assert(q->n_slots == 0);
    if (n == 0 || !swap_is_cheaper(s, n, q->n_computed - from * bt) ||
        !moves_room(&s->out_moves, n) || !(q->slots = malloc(n * sizeof(*q->slots))))
        return false;
    if (!swap_take(&s->swap, q->slots, n)) {
        free(q->slots);
        q->slots = NULL;
        return false;
    }
    q->n_slots = n;
    q->waiter.swap_from = from * bt;
    q->waiter.swap_to = q->n_computed;
    for (uint32_t i = 0; i < n; i++)
        moves_put(&s->out_moves, q->kv.ids[from + i], q->slots[i]);
    sched_count(s, M_SWAPPED_BLOCKS, "out", n);
    return true;
}

void preempt_swap_in(struct scheduler *s, struct seq *q)
{
    uint32_t bt = s->peer.block_size, from = q->waiter.swap_from / bt;
    uint32_t hits = q->kv.n_sealed, n = from + q->n_slots;
    assert(q->waiter.swap_from % bt == 0);
    if (q->n_slots && q->kv.n_cached == q->waiter.swap_to) {
        for (uint32_t i = hits; i < n; i++)
            moves_put(&s->in_moves, q->kv.ids[i], q->slots[i - from]);
        sched_count(s, M_SWAPPED_BLOCKS, "in", n > hits ? n - hits : 0);
    }
    if (q->n_slots)
        preempt_drop_swap(s, q);
}

bool preempt_lists_fit(struct scheduler *s)
{
    return moves_room(&s->in_moves, swap_used(&s->swap));
}

/* ------------------------------------------------------------------ preemption */
void preempt_reserve(struct scheduler *s, struct seq *q)
{
    /* headroom to grow, so that it is not preempted in its first steps */
    uint32_t want = q->n_tokens + s->peer.block_size;
    q->waiter.key.n = q->n_tokens;
    q->waiter.n_reserve = s->grows && want < q->n_most ? want : q->n_most;
}

static bool leave_room(struct scheduler *s)
{
    if (s->n_leave < s->cap_leave)
        return true;
    uint32_t cap = s->cap_leave ? 2 * s->cap_leave : 64;
    uint64_t *p = realloc(s->leave, cap * sizeof(*p));
    if (!p)
        return false;
    s->leave = p;
    s->cap_leave = cap;
    return true;
}

void preempt_requeue(struct scheduler *s, struct seq *q)
{
    assert(q->n_computed <= q->n_tokens);
    q->n_preempted++;
    sched_unlist(s, q);
    kv_release(s->kv, &q->kv, q->tokens, q->n_computed);
    policy_leaves(&s->policy, &q->waiter);
    q->n_computed = q->n_blocks_sent = q->n_windows_sent = 0;
    q->state = SEQ_WAITING;
    preempt_reserve(s, q);
    policy_return(&s->policy, &q->waiter);
}

/* Its computed blocks stay cached until they are evicted. */
static void preempt(struct scheduler *s, struct seq *q)
{
    /* log-probabilities of a prompt need it to be computed in one run */
    bool scored = q->req && q->req->params.prefill_logprobs && seq_generated(q) == 0;
    assert(q->state == SEQ_RUNNING && s->n_leave < s->cap_leave);
    bool swapped = s->swap.n > 0 && !scored && swap_out(s, q);
    sched_count(s, M_PREEMPTIONS, swapped ? "swap" : "recompute", 1);
    s->leave[s->n_leave++] = q->id;
    preempt_requeue(s, q);
}

static struct seq *last_in_rank(struct scheduler *s)
{
    struct seq *last = NULL;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (q->state == SEQ_RUNNING && (!last || policy_outranks(&last->waiter, &q->waiter)))
            last = q;
    }
    return last;
}

/* The next step writes the known tokens, and the shards run one step ahead. */
static uint32_t tokens_needed(const struct seq *q)
{
    return q->n_tokens + 1 < q->n_most ? q->n_tokens + 1 : q->n_most;
}

/* Draft tokens of this step and the next are written where tokens may follow. They use spare
 * blocks; nothing is preempted for them. */
static void room_for_drafts(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        struct kv_stats k = kv_stats(s->kv);
        uint64_t want = q->n_tokens + 2 * ((uint64_t)s->peer.speculate + 1);
        if (k.free + k.cached <= s->n_running)
            return;
        if (q->state == SEQ_RUNNING && !seq_in_prompt(q))
            kv_grow(s->kv, &q->kv, want < q->n_most ? (uint32_t)want : q->n_most);
    }
}

/* ------------------------------------------------------------------ windows */
/* Tokens that q's next step writes at least. */
static uint32_t window_needed(const struct seq *q)
{
    return seq_in_prompt(q) ? kv_media_next(&q->kv.media, q->n_computed) : tokens_needed(q);
}

static bool grow(struct scheduler *s, struct seq *q)
{
    return kv_grow(s->kv, &q->kv, tokens_needed(q)) &&
           (!kv_windows(s->kv) || kv_window_grow(s->kv, &q->kv, window_needed(q), 0));
}

/* Window blocks out of sight are released before blocks are allocated. */
static void pass_windows(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->state == SEQ_RUNNING)
            kv_window_pass(s->kv, &s->running[i]->kv, s->running[i]->n_computed);
}

/* Prompt chunks and drafts use spare window blocks, except for one block per running sequence. */
static void grow_windows(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        const uint64_t chunk = (uint64_t)q->n_computed + s->o.model.max_batch_prefill_tokens;
        uint64_t want = (uint64_t)q->kv.len * s->peer.block_size;
        if (seq_in_prompt(q))
            want = chunk < q->n_tokens ? chunk : q->n_tokens;
        if (q->state == SEQ_RUNNING && (seq_in_prompt(q) || s->peer.speculate))
            kv_window_grow(s->kv, &q->kv, (uint32_t)want, s->n_running);
    }
}

/* ------------------------------------------------------------------ recurrent state */
/* Is its state at a position where others may resume, or itself after a preemption? */
static bool worth_keeping(const struct scheduler *s, const struct seq *q)
{
    uint32_t n = q->n_computed, bt = s->peer.block_size;
    if (!q->req || n % bt != 0 || n <= q->kv.n_kept)
        return false; /* it is unknown how far a cancelled one was computed */
    if (seq_in_prompt(q))
        return n == q->stop;
    return q->state == SEQ_LEAVING || n - q->kv.n_kept >= SNAPSHOT_GAIN * bt;
}

/* Snapshots of running and just ended sequences. This comes first, so that no save targets a cell
 * that is freed in the same step. */
static void keep_states(struct scheduler *s)
{
    s->n_saves = 0;
    cells_unsaved(kv_cells(s->kv)); /* of a call that failed or was not sent */
    if (s->n_running > s->cap_saves) {
        struct wire_save *v = realloc(s->saves, s->cap_running * sizeof(*v));
        if (!v)
            return; /* snapshots are only cache */
        s->saves = v;
        s->cap_saves = s->cap_running;
    }
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if ((q->state != SEQ_RUNNING && q->state != SEQ_LEAVING) || !worth_keeping(s, q))
            continue;
        uint32_t cell = kv_snapshot(s->kv, &q->kv, q->tokens, q->n_computed, !seq_in_prompt(q));
        if (cell == NO_CELL)
            continue;
        s->saves[s->n_saves++] = (struct wire_save){q->id, cell, q->n_computed};
        sched_count(s, M_STATE_SAVES, NULL, 1);
    }
}

bool preempt_turn(struct scheduler *s)
{
    bool any = false;
    if (kv_cells(s->kv))
        keep_states(s);
    if (kv_windows(s->kv))
        pass_windows(s);
    for (uint32_t i = s->n_running; i-- > 0;) {
        struct seq *q = s->running[i];
        if (q->state != SEQ_LEAVING || !leave_room(s))
            continue;
        s->leave[s->n_leave++] = q->id;
        sched_remove(s, q);
    }
    for (uint32_t i = 0; i < s->n_running;) {
        struct seq *q = s->running[i];
        if (q->state != SEQ_RUNNING || grow(s, q)) {
            i++;
            continue;
        }
        if (!leave_room(s))
            break; /* the shards end a sequence without a block */
        preempt(s, last_in_rank(s));
        any = true;
        i = 0; /* the list has changed; sequences that have grown are skipped */
    }
    if (s->peer.speculate && !any)
        room_for_drafts(s);
    if (kv_windows(s->kv) && !any)
        grow_windows(s);
    return any;
}
