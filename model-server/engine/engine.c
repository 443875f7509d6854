#include "model-server/engine/engine.h"
#include "common/clock.h"
#include "common/log.h"
#include "model-server/engine/kv_pool.h"
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PREFILL = 4096, MOST_ROWS_AHEAD = 256, TRIAL_TOKENS = 16 };

struct engine {
    struct engine_options o;
    struct stepper step;
    struct batches batches;
    struct grammars *grammars;
    struct batch *gone; /* sequences that the last answer still points to */
    uint32_t n_blocks, n_slots, max_prefill, max_chunk;
    struct batch *next; /* was decoded by the last call, and will be by the next */
    bool broken;
};

struct engine *engine_new(const struct engine_options *o, struct err *e)
{
    struct engine *g = calloc(1, sizeof(*g));
    if (!g)
        return err_nomem(e), NULL;
    g->o = *o;
    g->max_prefill = g->max_chunk = DEFAULT_PREFILL;
    const struct model_info *m = model_info(o->model);
    g->grammars = grammars_new(o->tok, m->vocab, m->eos, m->n_eos);
    if (!g->grammars)
        err_nomem(e);
    if (!g->grammars ||
        stepper_init(&g->step, o->model, o->ops, o->dev, o->tok, o->block_size, e)) {
        engine_free(g);
        return NULL;
    }
    return g;
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    batches_clear(&g->batches);
    batch_free(g->gone);
    stepper_free(&g->step);
    grammars_free(g->grammars); /* sequences refer to it */
    free(g);
}

struct seq_limits engine_limits(const struct engine *g)
{
    const struct model_info *m = model_info(g->o.model);
    return (struct seq_limits){.vocab = m->vocab,
                               .block_size = g->o.block_size,
                               .n_blocks = g->n_blocks,
                               .eos = m->eos,
                               .n_eos = m->n_eos,
                               .tok = g->o.tok,
                               .grammars = g->grammars};
}

bool engine_broken(const struct engine *g) { return g->broken; }

/* ---------------------------------------------------------------- a step and its bookkeeping */

/* A sequence without a block for what it would write next must not run: it would write elsewhere.
 */
static bool has_room(const struct engine *g, const struct seq *s)
{
    return seq_has_room(s, (uint64_t)s->cached + s->step, g->o.block_size);
}

/* A rank whose step failed is out of step with the others for good. */
static int run(struct engine *g, struct batch *b, struct err *e)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (seq_live(b->v[i]) && !has_room(g, b->v[i]))
            seq_fail(b->v[i], "the router gave no KV block for its next token");
    if (stepper_run(&g->step, b->v, b->n, e) == 0)
        return 0;
    g->broken |= g->o.comm->world > 1;
    return -1;
}

static void forget(struct engine *g)
{
    g->next = NULL;
    batch_free(g->gone);
    g->gone = NULL;
}

/* After a step over `b`, which is in no list: plan the next one, let go of what is over. */
static int settle(struct engine *g, struct batch *b, struct answer *a, struct err *e)
{
    bool over = batch_over(b), failed = false;
    for (uint32_t i = 0; i < b->n; i++)
        failed |= b->v[i]->error[0] != '\0';
    a->out = &g->step;
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

/* What the router changes in `parts` before a step over them. */
static int edit(struct engine *g, const struct edits *x, struct batch *const *parts, size_t n,
                struct err *e)
{
    struct edit_limits lim = {g->n_blocks, g->n_slots};
    if (!x)
        return 0;
    if (edits_apply(x, g->o.model, &lim, parts, n, e)) {
        g->broken |= g->o.comm->world > 1 && e->kind != ERR_VALIDATION;
        return -1;
    }
    for (size_t i = 0; i < n && x->n_leave && !x->names_chunks; i++)
        step_plan_chunks(parts[i]->v, parts[i]->n, g->max_chunk);
    return 0;
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
    }
    return b;
}

/* A batch of all members of `parts`, which keep them as well until commit() or abandon(). */
static struct batch *view(struct batch *const *parts, size_t n, struct err *e)
{
    uint64_t total = 0;
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
    part->n = 0; /* its sequences live on in the view */
    batch_free(part);
}

int engine_prefill(struct engine *g, uint64_t id, const struct seq_spec *specs, uint32_t n,
                   const uint64_t *cached, const struct edits *x, struct answer *a, struct err *e)
{
    struct batch *old = NULL;
    *a = (struct answer){.concat_ns = -1};
    forget(g);
    if ((cached && batches_find_all(&g->batches, cached, 1, &old, e)) ||
        edit(g, x, &old, old ? 1 : 0, e))
        return -1;
    struct batch *fresh = admit(g, id, specs, n, e);
    if (!fresh)
        return -1;
    struct batch *all = fresh;
    if (old) {
        int64_t t0 = clock_ns();
        all = view((struct batch *[]){old, fresh}, 2, e);
        a->concat_ns = clock_ns() - t0;
    }
    if (!all || run(g, all, e)) {
        if (all && all != fresh)
            abandon(all);
        batch_free(fresh);
        return -1;
    }
    if (old) {
        let_go(batches_take(&g->batches, old->id));
        let_go(fresh);
    }
    return settle(g, all, a, e);
}

int engine_copy(struct engine *g, const uint32_t *source, const uint32_t *target, uint32_t n,
                struct err *e)
{
    for (uint32_t i = 0; i < n; i++) /* all or nothing: every rank refuses the same */
        if (source[i] >= g->n_blocks || target[i] >= g->n_blocks)
            return err_set(e, ERR_VALIDATION, "copy of KV block %u to %u: the cache has %u blocks",
                           source[i], target[i], g->n_blocks);
    if (n == 0 || model_kv_copy(g->o.model, source, target, n, e) == 0)
        return 0;
    g->broken |= g->o.comm->world > 1;
    return -1;
}

/* Whatever was decoded now will be decoded again, unless some of it is still in prefill: how much
 * of that rides along is for the router's next call to say. It may bring missing blocks as well. */
static void expect_more(struct engine *g, struct batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (seq_live(b->v[i]) && (b->v[i]->cached + 1 != b->v[i]->n || !has_room(g, b->v[i])))
            return;
    g->next = b;
}

int engine_ahead(struct engine *g, struct err *e)
{
    struct batch *b = g->next;
    g->next = NULL;
    if (!b || stepper_ahead(&g->step, b->v, b->n, e) == 0)
        return 0;
    g->broken |= g->o.comm->world > 1;
    return -1;
}

/* The usual case: one batch, which stays where it is. */
static int decode_one(struct engine *g, struct batch *b, const struct edits *x, struct answer *a,
                      struct err *e)
{
    if (edit(g, x, &b, 1, e) || run(g, b, e) || settle(g, batches_take(&g->batches, b->id), a, e))
        return -1;
    if (a->batch)
        expect_more(g, b);
    return 0;
}

static int decode_joined(struct engine *g, struct batch *const *parts, size_t n,
                         const struct edits *x, struct answer *a, struct err *e)
{
    int64_t t0 = clock_ns();
    if (edit(g, x, parts, n, e))
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
    if (a->batch)
        expect_more(g, all);
    return 0;
}

int engine_decode(struct engine *g, const uint64_t *ids, size_t n, const struct edits *x,
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

void engine_clear(struct engine *g, const uint64_t *id)
{
    forget(g);
    if (id)
        batch_free(batches_take(&g->batches, *id));
    else
        batches_clear(&g->batches);
}

/* ---------------------------------------------------------------- warm-up */

static uint32_t blocks_for(const struct engine *g, const struct seq_spec *s)
{
    uint64_t tokens = (uint64_t)s->n_prompt + (s->max_new_tokens ? s->max_new_tokens : 1);
    uint64_t n = (tokens + g->o.block_size - 1) / g->o.block_size;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* Scratch of the largest step, without computing it: on a CPU a trial prefill of that length may
 * take minutes, and the memory is the same. */
static int reserve(struct engine *g, const struct warmup *w, struct err *e)
{
    uint32_t rows = w->n > 1 ? w->n : 1;
    rows = rows < MOST_ROWS_AHEAD ? rows : MOST_ROWS_AHEAD;
    uint32_t tokens = g->max_prefill + rows;
    if (model_reserve(g->o.model, tokens, rows, e) || stepper_reserve(&g->step, tokens, rows, e) ||
        stepper_reserve_ahead(&g->step, rows, e))
        return err_wrap(e,
                        "Not enough memory to handle %u prefill tokens. You need to decrease "
                        "`--max-batch-prefill-tokens`",
                        g->max_prefill);
    return 0;
}

/* A short real step: what cannot work at all is found out now, not by the first user. */
static int trial(struct engine *g, const struct warmup *w, struct err *e)
{
    struct seq_spec s = w->specs[0];
    struct answer a;
    if (s.n_prompt > TRIAL_TOKENS)
        s.n_prompt = TRIAL_TOKENS;
    s.max_new_tokens = 1;
    s.blocks = s.slots = NULL;
    s.n_blocks = s.n_slots = 0;
    g->n_blocks = blocks_for(g, &s);
    if (model_kv_resize(g->o.model, g->n_blocks, g->o.block_size, g->o.kv_dtype, e) ||
        engine_prefill(g, 0, &s, 1, NULL, NULL, &a, e))
        return err_wrap(e, "warm-up");
    if (a.out->n_gen && a.out->gen[0].seq->error[0])
        return err_set(e, ERR_SYSTEM, "warm-up: %s", a.out->gen[0].seq->error);
    engine_clear(g, NULL);
    return 0;
}

/* Tokens that one request may come to: as asked for, else what the model knows. */
static uint32_t longest_request(const struct engine *g, const struct warmup *w)
{
    uint32_t asked = w->max_total_tokens ? w->max_total_tokens : g->o.max_total_tokens;
    return asked ? asked : model_info(g->o.model)->max_positions;
}

/* Rotations go on beyond the training, badly; a table of positions ends. */
static int check_longest(const struct engine *g, const struct warmup *w, struct err *e)
{
    const struct model_info *m = model_info(g->o.model);
    uint32_t longest = longest_request(g, w);
    if (!m->max_positions || longest <= m->max_positions)
        return 0;
    if (m->learned_positions)
        return err_set(e, ERR_VALIDATION, "--max-total-tokens %u: this model has %u positions",
                       longest, m->max_positions);
    LOG(LOG_WARN, "max_total_tokens is beyond what this model was trained for",
        LOGI("max_total_tokens", longest), LOGI("max_positions", m->max_positions));
    return 0;
}

static int size_pool(struct engine *g, const struct warmup *w, struct kv_plan *plan, struct err *e)
{
    const struct engine_options *o = &g->o;
    struct kv_memory m = {.shared = strcmp(o->ops->name, "cpu") == 0,
                          .world = (uint32_t)o->comm->world,
                          .fraction = o->memory_fraction,
                          .limit = o->kv_limit,
                          .block_size = o->block_size,
                          .longest = longest_request(g, w),
                          .block_bytes =
                              model_kv_block_bytes(o->model, o->block_size, o->kv_dtype)};
    if (o->comm->world > 1 && o->comm->ops->barrier(o->comm, e)) /* all have taken theirs */
        return -1;
    if (o->ops->memory(o->dev, &m.free, &m.total, e))
        return -1;
    if (m.shared) { /* reserved, and not touched yet */
        uint64_t scratch = m.world * model_scratch_held(o->model);
        m.free -= scratch < m.free ? scratch : m.free;
    }
    uint64_t swap = m.shared ? o->swap_bytes * m.world : 0; /* is taken from the same memory */
    m.free -= swap < m.free ? swap : m.free;
    *plan = kv_plan(&m);
    if (kv_agree(o->comm, &plan->n_blocks, e))
        return -1;
    plan->bytes = plan->n_blocks * m.block_bytes;
    LOG(LOG_INFO, "KV cache", LOGI("blocks", plan->n_blocks), LOGI("block_size", o->block_size),
        LOGI("tokens", (uint64_t)plan->n_blocks * o->block_size), LOGI("bytes", plan->bytes),
        LOGS("decided_by", plan->why), LOGI("free", m.free), LOGI("total", m.total),
        LOGI("block_bytes", m.block_bytes), LOGS("dtype", kv_dtype_name(o->kv_dtype)));
    return 0;
}

/* What one request may have: given, or what memory and model allow. */
static void find_limits(const struct engine *g, struct warmup *w)
{
    w->supported_tokens = g->n_blocks * g->o.block_size;
    if (!w->max_total_tokens) {
        bool asked = g->o.max_total_tokens > 0;
        w->max_total_tokens = longest_request(g, w);
        if (!w->max_total_tokens || (!asked && w->supported_tokens < w->max_total_tokens))
            w->max_total_tokens = w->supported_tokens;
    }
    if (!w->max_input_tokens)
        w->max_input_tokens = w->max_total_tokens - 1;
}

enum { MOST_SLOTS = 1 << 24 };

static int make_swap(struct engine *g, struct warmup *w, struct err *e)
{
    const struct engine_options *o = &g->o;
    uint64_t n = o->swap_bytes / model_kv_block_bytes(o->model, o->block_size, o->kv_dtype);
    g->n_slots = (uint32_t)(n < MOST_SLOTS ? n : MOST_SLOTS);
    if (g->n_slots && model_swap_resize(o->model, g->n_slots, &w->swap_block_ns, e))
        return err_wrap(e, "--swap-space");
    w->swap_slots = g->n_slots;
    if (g->n_slots)
        LOG(LOG_INFO, "swap region", LOGI("blocks", g->n_slots),
            LOGI("block_ns", (uint64_t)w->swap_block_ns));
    return 0;
}

int engine_warmup(struct engine *g, struct warmup *w, struct err *e)
{
    struct kv_plan plan;
    engine_clear(g, NULL);
    g->n_slots = 0;
    g->max_prefill = w->max_prefill_tokens ? w->max_prefill_tokens : DEFAULT_PREFILL;
    if (g->max_prefill > INT32_MAX / 2)
        return err_set(e, ERR_VALIDATION, "%u prefill tokens are too many", g->max_prefill);
    g->max_chunk = w->max_chunk_tokens && w->max_chunk_tokens < g->max_prefill ? w->max_chunk_tokens
                                                                               : g->max_prefill;
    if (check_longest(g, w, e) || reserve(g, w, e) || (w->n && trial(g, w, e)) ||
        size_pool(g, w, &plan, e)) {
        g->broken |= g->o.comm->world > 1;
        return -1;
    }
    g->n_blocks = 0;
    if (plan.n_blocks < 2)
        return err_set(e, ERR_SYSTEM,
                       "Not enough memory for a KV cache: %llu bytes are free for it",
                       (unsigned long long)plan.bytes);
    if (model_kv_resize(g->o.model, plan.n_blocks, g->o.block_size, g->o.kv_dtype, e))
        return err_wrap(e, "set `--kv-cache-memory`");
    g->n_blocks = plan.n_blocks;
    find_limits(g, w);
    return make_swap(g, w, e);
}
