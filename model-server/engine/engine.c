#include "common/clock.h"
#include "model-server/engine/engine_impl.h"
#include <assert.h>
#include <stdlib.h>

struct engine *engine_new(const struct engine_options *o, struct err *e)
{
    struct engine *g = calloc(1, sizeof(*g));
    if (!g)
        return err_nomem(e), NULL;
    g->o = *o;
    g->max_prefill = g->max_chunk = DEFAULT_PREFILL;
    const struct model_info *m = model_info(o->model);
    g->grammars = grammars_new(o->tok, m->vocab, m->eos, m->n_eos,
                               o->constraint_bytes ? o->constraint_bytes : SIZE_MAX);
    if (!g->grammars)
        err_nomem(e);
    if (!g->grammars ||
        stepper_init(&g->step, o->model, o->ops, o->dev, o->tok, o->block_size, e)) {
        engine_free(g);
        return NULL;
    }
    g->drafting = (struct drafting){.most = o->speculate,
                                    .most_rows = DRAFT_ROWS,
                                    .cost = o->row_cost > 0 ? o->row_cost : DRAFT_COST,
                                    .block_size = o->block_size};
    g->step.drafts = g->drafting.most > 0;
    g->step.ranks = o->comm->world;
    if (g->drafting.most && !m->by_length && heads_init(&g->heads, o->model, o->block_size, e)) {
        engine_free(g);
        return NULL;
    }
    g->heads.pass_cost = PASS_COST;
    if (heads_any(&g->heads))
        g->step.heads = g->drafting.heads = &g->heads;
    return g;
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    batches_clear(&g->batches);
    batch_free(g->gone);
    stepper_free(&g->step);
    heads_free(&g->heads);
    /* sequences refer to it and to the cells, so they are freed first */
    grammars_free(g->grammars);
    state_cells_free(&g->cells);
    free(g);
}

struct seq_limits engine_limits(struct engine *g)
{
    const struct model_info *m = model_info(g->o.model);
    return (struct seq_limits){.vocab = m->vocab,
                               .block_size = g->o.block_size,
                               .n_blocks = g->n_blocks,
                               .n_windows = g->n_windows,
                               .window = g->step.window,
                               .eos = m->eos,
                               .n_eos = m->n_eos,
                               .tok = g->o.tok,
                               .grammars = g->grammars,
                               .adapters = model_adapters(g->o.model),
                               .pictures = g->o.pictures,
                               .cells = m->state_bytes ? &g->cells : NULL};
}

bool engine_broken(const struct engine *g)
{
    return g->broken || (g->o.ops->lost && g->o.ops->lost(g->o.dev));
}

struct grammars_stats engine_grammars(const struct engine *g)
{
    return grammars_stats(g->grammars);
}

struct engine_stats engine_stats(const struct engine *g)
{
    struct engine_stats t = {.blocks_total = g->n_blocks};
    for (const struct batch *b = g->batches.head; b; b = b->next) {
        t.batches++;
        t.sequences += b->n;
        for (uint32_t i = 0; i < b->n; i++) {
            t.blocks += b->v[i]->n_blocks;
            t.tokens += b->v[i]->n;
        }
    }
    return t;
}

bool engine_holds(const struct engine *g, uint64_t request)
{
    for (const struct batch *b = g->batches.head; b; b = b->next)
        if (batch_find(b, request))
            return true;
    return false;
}

/* ---------------------------------------------------------------- a step and its bookkeeping */

/* True if `s` has the blocks for its next step. Otherwise it must not run, because it would write
 * to blocks of other sequences. */
static bool has_room(const struct engine *g, const struct seq *s)
{
    return seq_has_room(s, (uint64_t)s->cached + s->step, g->o.block_size);
}

/* Encodes the images that the step needs. A step never splits an image whose tokens attend to
 * each other. With a limit a prompt stops before an image that is not encoded yet. */
static int encode(struct engine *g, const struct batch *b, struct err *e)
{
    bool any = false;
    g->encode_done = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        struct seq *s = b->v[i];
        s->stalled = 0;
        if (!s->media || !seq_live(s) || !s->step)
            continue;
        any = true;
        s->step = media_end(s->media, s->cached + s->step) - s->cached;
        media_want(s->media, s->cached, s->cached + s->step);
    }
    if (!any)
        return 0;
    if (pictures_encode(g->o.pictures, g->encode_most, &g->encode_done, e))
        return -1;
    for (uint32_t i = 0; i < b->n; i++) {
        struct seq *s = b->v[i];
        if (!s->media || !seq_live(s) || !s->step)
            continue;
        const uint32_t ready = media_ready(s->media, s->cached, s->cached + s->step) - s->cached;
        s->stalled = s->step - ready;
        s->step = ready;
    }
    return 0;
}

static int run(struct engine *g, struct batch *b, struct err *e)
{
    const int64_t t0 = clock_ns();
    int rc = encode(g, b, e);
    g->encode_ns = g->o.pictures ? clock_ns() - t0 : 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (seq_live(b->v[i]) && !has_room(g, b->v[i]))
            seq_fail(b->v[i], "the router gave no KV block for its next token");
    rc = rc ? rc : stepper_run(&g->step, b->v, b->n, e);
    g->step.forward_ns += g->encode_ns;
    if (rc == 0)
        return 0;
    engine_note_failure(g);
    return -1;
}

static void forget(struct engine *g)
{
    g->next = NULL;
    batch_free(g->gone);
    g->gone = NULL;
}

/* Frees what the pictures of a finished sequence take, because others may wait for it. Its
 * recurrent state may still be saved. For that its last tokens are computed again, at positions
 * that depend on the places of its pictures. */
static void settle_media(struct seq *s)
{
    if (s->media && (seq_live(s) || (s->cells && !s->error[0]))) {
        media_release(s->media, s->cached);
    } else {
        media_free(s->media);
        s->media = NULL;
    }
}

/* After a step of `b`, which is in no list: plans the next step except for its drafts, which may
 * still arrive, and frees finished sequences. */
static int settle(struct engine *g, struct batch *b, struct answer *a, struct err *e)
{
    bool over = batch_over(b), failed = false;
    assert(!g->gone && !g->next); /* forget() came before */
    for (uint32_t i = 0; i < b->n; i++) {
        failed |= b->v[i]->error[0] != '\0';
        settle_media(b->v[i]);
    }
    grammars_settle(g->grammars);
    a->out = &g->step;
    a->encode_ns = g->encode_ns;
    a->encode_done = g->encode_done;
    a->batch = over ? NULL : b;
    if (over) {
        g->gone = b;
        return 0;
    }
    if (failed) {
        g->gone = batch_new(b->id, e);
        if (!g->gone || batch_reserve(g->gone, b->n, e)) {
            batch_free(b);
            return -1;
        }
        batch_drop_failed(b, g->gone);
    }
    step_plan_chunks(b->v, b->n, g->max_chunk);
    batches_put(&g->batches, b);
    return 0;
}

/* Before a step of `parts`: applies the router's changes and plans drafts, unless the step was
 * run ahead with its drafts. */
static int prepare(struct engine *g, const struct edits *x, struct batch *const *parts, size_t n,
                   struct err *e)
{
    struct edit_limits lim = {.n_blocks = g->n_blocks,
                              .n_slots = g->n_slots,
                              .n_windows = g->n_windows,
                              .cells = g->cells.n ? &g->cells : NULL,
                              .step = &g->step,
                              .vocab = model_info(g->o.model)->vocab};
    g->encode_most = x && x->names_chunks ? x->encode_most : 0;
    if (x && edits_apply(x, g->o.model, &lim, parts, n, e)) {
        if (e->kind != ERR_VALIDATION)
            engine_note_failure(g);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (x && x->n_leave && !x->names_chunks)
            step_plan_chunks(parts[i]->v, parts[i]->n, g->max_chunk);
        if (!stepper_is_ahead(&g->step, parts[i]->v, parts[i]->n) &&
            drafts_plan(&g->drafting, parts[i]->v, parts[i]->n, e)) {
            engine_note_failure(g);
            return -1;
        }
    }
    return 0;
}

/* Copies states of cached prefixes; the originals stay for other requests. */
static int begin_states(struct engine *g, const struct batch *b, struct err *e)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const struct seq *s = b->v[i];
        if (!s->cells || s->error[0] || s->state_from == NO_CELL)
            continue;
        if (model_state_copy(g->o.model, &s->state_from, &s->cell[0], 1, e) == 0)
            continue;
        engine_note_failure(g);
        return -1;
    }
    return 0;
}

/* If one rank could not decode an image (a timeout or out of memory), all ranks refuse the
 * request, because they have to take the same steps. */
static int agree(struct engine *g, struct batch *b, struct err *e)
{
    const uint32_t n = (b->n + 3) & ~3u;
    bool any = false;
    for (uint32_t i = 0; i < b->n; i++)
        any |= b->v[i]->brought_media;
    if (!any || g->o.comm->world == 1)
        return 0;
    float *failed = calloc(n, sizeof(*failed));
    for (uint32_t i = 0; failed && i < b->n; i++)
        failed[i] = b->v[i]->error[0] ? 1 : 0;
    int rc = failed ? comm_all_reduce(g->o.comm, failed, n, e) : err_nomem(e);
    for (uint32_t i = 0; rc == 0 && i < b->n; i++)
        if (failed[i] > 0)
            seq_fail(b->v[i], "a picture of this request could not be decoded");
    g->broken |= rc != 0;
    free(failed);
    return rc;
}

static struct batch *admit(struct engine *g, uint64_t id, const struct seq_spec *specs, uint32_t n,
                           struct err *e)
{
    struct seq_limits lim = engine_limits(g);
    struct batch *b = batch_new(id, e);
    if (!b || batch_reserve(b, n ? n : 1, e))
        return batch_free(b), NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = seq_new(&specs[i], &lim, e);
        if (!s)
            return batch_free(b), NULL;
        batch_add(b, s);
        if (s->starved && g->o.comm->world > 1)
            return batch_free(b), err_nomem(e), NULL;
    }
    if (agree(g, b, e) || begin_states(g, b, e))
        return batch_free(b), NULL;
    return b;
}

/* A batch of all members of `parts`, which also keep them until commit() or abandon(). */
static struct batch *view(struct batch *const *parts, size_t n, struct err *e)
{
    uint64_t total = 0;
    assert(n > 0);
    for (size_t i = 0; i < n; i++)
        total += parts[i]->n;
    struct batch *b = batch_new(parts[0]->id, e);
    if (!b || batch_reserve(b, total ? (uint32_t)total : 1, e))
        return batch_free(b), NULL;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < parts[i]->n; k++)
            batch_add(b, parts[i]->v[k]);
    return b;
}

static void abandon(struct batch *view)
{
    view->n = 0;
    batch_free(view);
}

static void let_go(struct batch *part)
{
    assert(part && !part->next); /* in no list any more */
    part->n = 0;                 /* its sequences now belong to the view */
    batch_free(part);
}

int engine_prefill(struct engine *g, uint64_t id, const struct seq_spec *specs, uint32_t n,
                   const uint64_t *cached, const struct edits *x, struct answer *a, struct err *e)
{
    struct batch *old = NULL;
    *a = (struct answer){.concat_ns = -1};
    g->heads.ns = 0;
    if (model_info(g->o.model)->task != TASK_GENERATE)
        return err_set(e, ERR_VALIDATION, "this model gives vectors or scores, no text");
    forget(g);
    if (cached && batches_find_all(&g->batches, cached, 1, &old, e))
        return -1;
    heads_enter(&g->heads, n + (old ? old->n : 0));
    if (prepare(g, x, &old, old ? 1 : 0, e))
        return -1;
    struct batch *fresh = admit(g, id, specs, n, e);
    if (!fresh) {
        if (e->kind == ERR_SYSTEM)
            engine_note_failure(g);
        return -1;
    }
    struct batch *all = fresh;
    if (old) {
        int64_t t0 = clock_ns();
        all = view((struct batch *[]){old, fresh}, 2, e);
        a->concat_ns = clock_ns() - t0;
    }
    if (!all || run(g, all, e)) {
        if (all && all != fresh)
            abandon(all);
        if (old && all && g->step.chosen) /* its new tokens cannot be reported */
            batch_free(batches_take(&g->batches, old->id));
        batch_free(fresh);
        return -1;
    }
    if (old) {
        let_go(batches_take(&g->batches, old->id));
        let_go(fresh);
    }
    return settle(g, all, a, e);
}

/* All or nothing: every rank refuses the same copies. */
static int check_copies(const uint32_t *source, const uint32_t *target, uint32_t n, uint32_t limit,
                        struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (source[i] >= limit || target[i] >= limit)
            return err_set(e, ERR_VALIDATION, "copy of KV block %u to %u: the cache has %u blocks",
                           source[i], target[i], limit);
    return 0;
}

int engine_copy(struct engine *g, const uint32_t *source, const uint32_t *target, uint32_t n,
                struct err *e)
{
    if (check_copies(source, target, n, g->n_blocks, e))
        return -1;
    if (n == 0 || model_kv_copy(g->o.model, source, target, n, e) == 0)
        return 0;
    engine_note_failure(g);
    return -1;
}

int engine_copy_windows(struct engine *g, const uint32_t *source, const uint32_t *target,
                        uint32_t n, struct err *e)
{
    if (check_copies(source, target, n, g->n_windows, e))
        return -1;
    if (n == 0 || model_window_copy(g->o.model, source, target, n, e) == 0)
        return 0;
    engine_note_failure(g);
    return -1;
}

/* Plans a run-ahead: the decoded sequences will most likely be decoded again. Not if some are
 * still in prefill or wait for their images, because the router's next call sets their chunks, and
 * may bring missing blocks. */
static void expect_more(struct engine *g, struct batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (seq_live(b->v[i]) &&
            (b->v[i]->cached + 1 != b->v[i]->n || b->v[i]->stalled || !has_room(g, b->v[i])))
            return;
    assert(batches_find(&g->batches, b->id) == b);
    g->next = b;
}

int engine_ahead(struct engine *g, struct err *e)
{
    struct batch *b = g->next;
    g->next = NULL;
    if (!b)
        return 0;
    assert(batches_find(&g->batches, b->id) == b);
    const int64_t t0 = clock_ns();
    heads_enter(&g->heads, b->n);
    if (drafts_plan(&g->drafting, b->v, b->n, e) == 0 &&
        stepper_ahead(&g->step, b->v, b->n, e) == 0) {
        g->heads.ns += clock_ns() - t0;
        return 0;
    }
    engine_note_failure(g);
    return -1;
}

/* The usual case: one batch, which is decoded in place. */
static int decode_one(struct engine *g, struct batch *b, const struct edits *x, struct answer *a,
                      struct err *e)
{
    heads_enter(&g->heads, b->n);
    if (prepare(g, x, &b, 1, e) || run(g, b, e) ||
        settle(g, batches_take(&g->batches, b->id), a, e))
        return -1;
    if (a->batch && !(x && x->drafting))
        expect_more(g, b);
    return 0;
}

static int decode_joined(struct engine *g, struct batch *const *parts, size_t n,
                         const struct edits *x, struct answer *a, struct err *e)
{
    int64_t t0 = clock_ns();
    uint32_t seqs = 0;
    for (size_t i = 0; i < n; i++)
        seqs += parts[i]->n;
    heads_enter(&g->heads, seqs);
    if (prepare(g, x, parts, n, e))
        return -1;
    struct batch *all = view(parts, n, e);
    if (!all)
        return -1;
    a->concat_ns = clock_ns() - t0;
    if (run(g, all, e)) {
        abandon(all);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        let_go(batches_take(&g->batches, parts[i]->id));
    if (settle(g, all, a, e))
        return -1;
    if (a->batch && !(x && x->drafting))
        expect_more(g, all);
    return 0;
}

static int decode(struct engine *g, const uint64_t *ids, size_t n, const struct edits *x,
                  struct answer *a, struct err *e)
{
    *a = (struct answer){.concat_ns = -1};
    forget(g);
    if (!n)
        return err_set(e, ERR_VALIDATION, "Must provide at least one batch");
    if (n == 1) {
        struct batch *b;
        return batches_find_all(&g->batches, ids, 1, &b, e) ? -1 : decode_one(g, b, x, a, e);
    }
    struct batch **parts = calloc(n, sizeof(struct batch *));
    if (!parts)
        return err_nomem(e);
    int rc = batches_find_all(&g->batches, ids, n, parts, e);
    if (rc == 0)
        rc = decode_joined(g, parts, n, x, a, e);
    free(parts);
    return rc;
}

/* Records the time per token of a step with or without drafts of the head, if it contained no
 * prompt. */
static int learn(struct engine *g, const struct answer *a, int64_t ns, struct err *e)
{
    bool prompts = false;
    for (uint32_t i = 0; a->batch && i < a->batch->n; i++)
        prompts |= seq_live(a->batch->v[i]) && a->batch->v[i]->cached + 1 != a->batch->v[i]->n;
    for (uint32_t i = 0; i < a->out->n_gen; i++)
        prompts |= a->out->gen[i].first;
    g->heads.ns += ns;
    ns = g->heads.ns;
    g->heads.ns = 0;
    if (prompts || heads_learn(&g->heads, g->o.comm, a->out->n_gen, ns, e) == 0)
        return 0;
    engine_note_failure(g);
    return -1;
}

int engine_decode(struct engine *g, const uint64_t *ids, size_t n, const struct edits *x,
                  struct answer *a, struct err *e)
{
    const int64_t t0 = clock_ns();
    const int rc = decode(g, ids, n, x, a, e);
    if (rc || !heads_any(&g->heads))
        return rc;
    return learn(g, a, clock_ns() - t0, e);
}

int engine_filter(struct engine *g, uint64_t id, const uint64_t *requests, size_t n,
                  const struct batch **out, struct err *e)
{
    struct batch *b;
    forget(g);
    if (batches_find_all(&g->batches, &id, 1, &b, e) || batch_filter(b, requests, n, e))
        return -1;
    step_plan_chunks(b->v, b->n, g->max_chunk);
    *out = b;
    return 0;
}

void engine_drop_answer(struct engine *g) { forget(g); }

void engine_clear(struct engine *g, const uint64_t *id)
{
    forget(g);
    if (id)
        batch_free(batches_take(&g->batches, *id));
    else
        batches_clear(&g->batches);
}
