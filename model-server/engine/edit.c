#include "model-server/engine/edit.h"
#include "model-server/engine/step/drafts.h"
#include "model-server/engine/step/step.h"
#include "model-server/engine/windows.h"
#include <assert.h>
#include <string.h>

/* The sequence of request `id`; *part is the index of its batch. */
static struct seq *owner(struct batch *const *parts, size_t n, uint64_t id, struct batch **part)
{
    struct seq *s = NULL;
    for (size_t i = 0; i < n && !s; i++)
        if ((s = batch_find(parts[i], id)))
            *part = parts[i];
    return s;
}

static int check_blocks(const uint32_t *v, size_t n, uint32_t limit, const char *what,
                        struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] >= limit)
            return err_set(e, ERR_VALIDATION, "%s %u: there are %u", what, v[i], limit);
    return 0;
}

static int check_moves(const struct kv_moves *m, const struct edit_limits *lim, struct err *e)
{
    if (m->n_blocks != m->n_slots)
        return err_set(e, ERR_VALIDATION, "%zu blocks and %zu slots are no pairs", m->n_blocks,
                       m->n_slots);
    return check_blocks(m->blocks, m->n_blocks, lim->n_blocks, "KV block", e) ||
                   check_blocks(m->slots, m->n_slots, lim->n_slots, "swap slot", e)
               ? -1
               : 0;
}

static int check_more(const struct edits *x, size_t at, const struct edit_limits *lim,
                      struct batch *const *parts, size_t n_parts, struct err *e)
{
    const struct kv_more *more = &x->more[at];
    struct batch *part;
    const struct seq *s = owner(parts, n_parts, more->id, &part);
    for (size_t i = 0; i < at && s; i++)
        if (x->more[i].id == more->id)
            s = NULL;
    for (size_t i = 0; i < x->n_leave && s; i++)
        if (x->leave[i] == more->id)
            s = NULL;
    if (!s)
        return err_set(e, ERR_VALIDATION, "blocks for request %llu, which is not there",
                       (unsigned long long)more->id);
    if (more->from > s->n_blocks || more->n > s->max_blocks - more->from)
        return err_set(e, ERR_VALIDATION, "request %llu: blocks %u to %zu do not follow its %u",
                       (unsigned long long)more->id, more->from, more->from + more->n, s->n_blocks);
    for (uint32_t i = more->from; i < s->n_blocks && i - more->from < more->n; i++)
        if (s->blocks[i] != more->blocks[i - more->from])
            return err_set(e, ERR_VALIDATION, "request %llu: block %u is %u, not %u",
                           (unsigned long long)more->id, i, s->blocks[i],
                           more->blocks[i - more->from]);
    if (windows_check(s, more->window_from, more->windows, more->n_windows, lim->n_windows, e))
        return -1;
    return check_blocks(more->blocks, more->n, lim->n_blocks, "KV block", e);
}

static uint32_t rest(const struct seq *s) { return s->n - s->cached; }

static int check_chunks(const struct edits *x, struct batch *const *parts, size_t n_parts,
                        struct err *e)
{
    const struct chunks *c = &x->chunks;
    struct batch *part;
    if (c->n_ids != c->n_tokens)
        return err_set(e, ERR_VALIDATION, "%zu requests and %zu chunks are no pairs", c->n_ids,
                       c->n_tokens);
    for (size_t i = 0; i < c->n_ids; i++) {
        const struct seq *s = owner(parts, n_parts, c->ids[i], &part);
        if (!s || !seq_live(s) || c->tokens[i] > rest(s))
            return err_set(e, ERR_VALIDATION, "request %llu: no %u tokens of its prompt are left",
                           (unsigned long long)c->ids[i], c->tokens[i]);
    }
    return 0;
}

static void plan_chunks(const struct chunks *c, struct batch *const *parts, size_t n_parts)
{
    struct batch *part;
    for (size_t i = 0; i < n_parts; i++)
        for (uint32_t k = 0; k < parts[i]->n; k++)
            if (seq_live(parts[i]->v[k]) && rest(parts[i]->v[k]) > 1)
                parts[i]->v[k]->step = 0;
    for (size_t i = 0; i < c->n_ids; i++) {
        struct seq *s = owner(parts, n_parts, c->ids[i], &part);
        if (s && rest(s) > 1) /* it may just have left */
        {
            assert(c->tokens[i] <= rest(s));
            s->step = c->tokens[i];
        }
    }
}

static int check(const struct edits *x, const struct edit_limits *lim, struct batch *const *parts,
                 size_t n_parts, struct err *e)
{
    struct batch *part;
    for (size_t i = 0; i < x->n_leave; i++) {
        bool there = owner(parts, n_parts, x->leave[i], &part);
        for (size_t k = 0; k < i && there; k++)
            there = x->leave[k] != x->leave[i];
        if (!there)
            return err_set(e, ERR_VALIDATION, "Request ID %llu not found.",
                           (unsigned long long)x->leave[i]);
    }
    if (check_moves(&x->out, lim, e) || check_moves(&x->in, lim, e))
        return -1;
    for (size_t i = 0; i < x->n_more; i++)
        if (check_more(x, i, lim, parts, n_parts, e))
            return -1;
    return check_chunks(x, parts, n_parts, e);
}

/* Checks the cells as if all saves happened at once: a cell that is named twice holds the last
 * save. */
static int check_saves(const struct edits *x, const struct edit_limits *lim,
                       struct batch *const *parts, size_t n_parts, struct err *e)
{
    struct batch *part;
    for (size_t i = 0; i < x->n_saves; i++) {
        const struct state_save *save = &x->saves[i];
        const struct seq *s = owner(parts, n_parts, save->id, &part);
        if (!s || !s->cells || !lim->cells)
            return err_set(e, ERR_VALIDATION, "the state of request %llu, which has none",
                           (unsigned long long)save->id);
        if (s->cached != save->tokens)
            return err_set(e, ERR_VALIDATION,
                           "the state of request %llu is after %u tokens, not %u",
                           (unsigned long long)save->id, s->cached, save->tokens);
        if (state_cells_name(lim->cells, save->cell, e))
            return -1;
    }
    return 0;
}

static int save_states(const struct edits *x, struct stepper *st, struct batch *const *parts,
                       size_t n_parts, struct err *e)
{
    struct batch *part;
    for (size_t i = 0; i < x->n_saves; i++) {
        struct seq *s = owner(parts, n_parts, x->saves[i].id, &part);
        if (stepper_state(st, s, x->saves[i].cell, e))
            return -1;
    }
    return 0;
}

/* After the first allocation failure the remaining offers are skipped, because they are only
 * drafts. */
static void offer(const struct edits *x, const struct edit_limits *lim, struct batch *const *parts,
                  size_t n_parts)
{
    struct err none = ERR_INIT;
    struct batch *part;
    for (size_t i = 0; i < x->n_offers && !none.kind; i++) {
        const struct draft_offer *o = &x->offers[i];
        struct seq *s = owner(parts, n_parts, o->id, &part);
        uint32_t n = 0;
        while (n < o->n && n < DRAFTS_MOST && o->ids[n] < lim->vocab)
            n++;
        if (s && seq_live(s))
            seq_offer(s, o->at, o->ids, n, &none);
    }
}

int edits_apply(const struct edits *x, struct model *m, const struct edit_limits *lim,
                struct batch *const *parts, size_t n_parts, struct err *e)
{
    struct batch *part = NULL;
    if (check(x, lim, parts, n_parts, e) || check_saves(x, lim, parts, n_parts, e) ||
        save_states(x, lim->step, parts, n_parts, e) ||
        (x->out.n_blocks &&
         model_swap_out(m, x->out.blocks, x->out.slots, (uint32_t)x->out.n_blocks, e)) ||
        (x->in.n_blocks &&
         model_swap_in(m, x->in.blocks, x->in.slots, (uint32_t)x->in.n_blocks, e)))
        return -1;
    for (size_t i = 0; i < x->n_leave; i++) {
        owner(parts, n_parts, x->leave[i], &part);
        assert(part); /* check() found it */
        batch_drop(part, x->leave[i]);
    }
    for (size_t i = 0; i < x->n_more; i++) {
        struct seq *s = owner(parts, n_parts, x->more[i].id, &part);
        uint32_t end = x->more[i].from + (uint32_t)x->more[i].n;
        assert(s && end <= s->max_blocks);
        for (size_t k = 0; k < x->more[i].n; k++) /* none: more windows alone */
            s->blocks[x->more[i].from + k] = x->more[i].blocks[k];
        s->n_blocks = end > s->n_blocks ? end : s->n_blocks;
        windows_put(s, x->more[i].window_from, x->more[i].windows, x->more[i].n_windows);
    }
    if (x->names_chunks)
        plan_chunks(&x->chunks, parts, n_parts);
    offer(x, lim, parts, n_parts);
    return 0;
}
