/* plan.c - the result that a warm-up would have, computed as in warmup.c without allocating
 * anything. */
#include "model-server/engine/engine_impl.h"
#include <assert.h>
#include <stdio.h>

/* The router never assigns block 0. */
static uint32_t usable_tokens(const struct engine *g, uint32_t n_blocks)
{
    return n_blocks > 1 ? (n_blocks - 1) * g->o.block_size : 0;
}

static void find_limits(const struct engine *g, const struct warmup *w, struct engine_plan *p)
{
    const uint32_t usable = usable_tokens(g, p->n_blocks), longest = warmup_longest(g, w);
    p->max_batch_total_tokens = p->n_blocks * g->o.block_size;
    p->max_total_tokens = longest && longest < usable ? longest : usable;
    p->max_input_tokens = w->max_input_tokens ? w->max_input_tokens : p->max_total_tokens;
    if (p->max_input_tokens >= p->max_total_tokens)
        p->max_input_tokens = p->max_total_tokens ? p->max_total_tokens - 1 : 0;
    p->max_input_tokens = warmup_input(g, p->max_input_tokens);
    assert(!p->max_total_tokens || p->max_input_tokens < p->max_total_tokens);
}

/* True if a length was requested that the cache cannot hold. */
static bool too_short(const struct engine *g, const struct warmup *w, const struct engine_plan *p)
{
    const uint32_t asked = w->max_total_tokens ? w->max_total_tokens : g->o.max_total_tokens;
    return asked > p->max_batch_total_tokens;
}

static void judge(const struct engine *g, const struct warmup *w, const struct kv_memory *m,
                  struct engine_plan *p)
{
    struct err e = ERR_INIT;
    const uint32_t longest = warmup_longest(g, w);
    const uint64_t ranks = engine_ranks_here(g),
                   needed = (p->weights + p->pictures + p->workspaces) * ranks;
    const struct kv_short s = {.total = p->total,
                               .weights = p->weights,
                               .workspaces = p->workspaces,
                               .left = p->kv,
                               .longest = longest,
                               .longest_bytes = kv_request_bytes(m, longest),
                               .largest = usable_tokens(g, p->n_blocks)};
    if (needed > p->free) {
        snprintf(p->why, sizeof(p->why),
                 "Not enough memory: weights take %llu bytes a rank (--quantize, --num-shard), "
                 "workspaces %llu (--max-batch-prefill-tokens), the vision tower %llu, on %llu "
                 "ranks here; %llu bytes of %llu are free",
                 (unsigned long long)p->weights, (unsigned long long)p->workspaces,
                 (unsigned long long)p->pictures, (unsigned long long)ranks,
                 (unsigned long long)p->free, (unsigned long long)p->total);
    } else if (p->n_blocks < 2 || too_short(g, w, p)) {
        p->largest_total_tokens = s.largest;
        kv_too_little(&s, &e);
        snprintf(p->why, sizeof(p->why), "%s", e.msg);
    }
}

/* Models that do not generate keep no state of texts. */
static int plan_texts(const struct warmup *w, struct engine_plan *p, const struct model_info *m)
{
    p->kv_why = "texts";
    p->max_input_tokens = m->max_length ? m->max_length : p->max_batch_prefill_tokens;
    if (w->max_input_tokens && w->max_input_tokens < p->max_input_tokens)
        p->max_input_tokens = w->max_input_tokens;
    p->max_total_tokens = p->max_input_tokens;
    p->max_batch_total_tokens = p->max_batch_prefill_tokens;
    if (p->weights + p->workspaces > p->free)
        snprintf(
            p->why, sizeof(p->why),
            "Not enough memory: weights take %llu bytes a rank, workspaces %llu; %llu are free",
            (unsigned long long)p->weights, (unsigned long long)p->workspaces,
            (unsigned long long)p->free);
    return 0;
}

uint32_t engine_default_prefill(void) { return DEFAULT_PREFILL; }

int engine_plan(const struct engine *g, const struct warmup *w, struct engine_plan *p,
                struct err *e)
{
    const struct engine_options *o = &g->o;
    const struct adapters *a = model_adapters(o->model);
    const uint32_t rows = warmup_rows(g, w);
    uint64_t all, left, pages = 0;
    *p = (struct engine_plan){.weights = model_info(o->model)->weight_bytes};
    p->max_batch_prefill_tokens = w->max_prefill_tokens ? w->max_prefill_tokens : DEFAULT_PREFILL;
    if (warmup_check(g, w, e) || o->ops->memory(o->dev, &p->free, &p->total, e))
        return -1;
    p->workspaces = model_scratch_bytes(o->model, p->max_batch_prefill_tokens + rows, rows);
    p->pictures = o->pictures ? pictures_memory(o->pictures, p->max_batch_prefill_tokens) : 0;
    if (o->pictures)
        p->pictures += warmup_shown_blocks(g, w, p->free, p->total) *
                       pictures_shown_bytes(o->pictures, o->kv_dtype);
    const uint64_t taken = (p->weights + p->pictures) * engine_ranks_here(g);
    left = p->free > taken ? p->free - taken : 0;
    if (a)
        pages = warmup_adapter_pages(g, left, &all);
    p->adapters = a ? pages * adapters_page_bytes(a) : 0;
    p->swap = o->swap_bytes;
    if (model_info(o->model)->task != TASK_GENERATE)
        return plan_texts(w, p, model_info(o->model));
    const struct kv_memory m = warmup_memory(g, w, left, p->total, p->workspaces + p->adapters);
    const struct kv_plan k = kv_plan(&m);
    p->block_bytes = m.block_bytes;
    p->n_blocks = k.n_blocks;
    p->n_cells = k.n_cells;
    p->n_windows = k.n_windows;
    p->window_block_bytes = m.window_bytes;
    p->cell_bytes = m.cell_bytes;
    p->state = k.n_cells * m.cell_bytes;
    p->kv = k.bytes;
    p->kv_why = k.why;
    find_limits(g, w, p);
    judge(g, w, &m, p);
    return 0;
}
