/* warmup.c - memory at start: scratch of the largest step, adapters, the KV cache. */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/engine/embed.h"
#include "model-server/engine/engine_impl.h"
#include "model-server/engine/kv_pool.h"
#include <string.h>

enum { MOST_ROWS_AHEAD = 256, TRIAL_TOKENS = 4 };

static uint32_t blocks_for(const struct engine *g, const struct seq_spec *s)
{
    uint64_t tokens = (uint64_t)s->n_prompt + (s->max_new_tokens ? s->max_new_tokens : 1);
    uint64_t n = (tokens + g->o.block_size - 1) / g->o.block_size;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* Most tokens of a request: the requested limit, or else the model's. */
uint32_t warmup_longest(const struct engine *g, const struct warmup *w)
{
    uint32_t asked = w->max_total_tokens ? w->max_total_tokens : g->o.max_total_tokens;
    return asked ? asked : model_info(g->o.model)->max_positions;
}

/* Tokens of a text of which `most` fit: a table of an encoder's positions ends, too. */
uint32_t warmup_input(const struct engine *g, uint32_t most)
{
    const uint32_t rows = model_info(g->o.model)->text_positions;
    return rows && rows < most ? rows : most;
}

/* Rows of the largest step: its sequences and their drafts, and two per sibling. */
uint32_t warmup_rows(const struct engine *g, const struct warmup *w)
{
    uint32_t rows = w->n > 1 ? w->n : 1;
    rows = rows < MOST_ROWS_AHEAD ? rows : MOST_ROWS_AHEAD;
    const uint32_t siblings = g->drafting.heads ? 2 * SIBLINGS_MOST : 0;
    return g->drafting.most ? rows + g->drafting.most_rows + siblings : rows;
}

/* A quarter of what the KV cache could have, but at least one image and at most MOST_SHOWN. */
enum { SHOWN_SHARE = 4, MOST_SHOWN = 64 };

uint32_t warmup_shown_blocks(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                             uint64_t total)
{
    if (!g->o.pictures || !pictures_cross(g->o.pictures))
        return 0;
    const struct kv_memory m = warmup_memory(g, w, free_bytes, total, 0);
    const uint64_t least = pictures_shown_most(g->o.pictures), most = MOST_SHOWN * least;
    const uint64_t each = pictures_shown_bytes(g->o.pictures, g->o.kv_dtype);
    /* a stage may have no such layer: it offers the most, and the ranks agree on the least */
    const uint64_t n = each ? kv_plan(&m).bytes / SHOWN_SHARE / each : most;
    return (uint32_t)(n < least ? least : n < most ? n : most);
}

/* Allocates keys and values of media for cross-attention layers. */
static int reserve_shown(struct engine *g, const struct warmup *w, struct err *e)
{
    const struct engine_options *o = &g->o;
    uint64_t free_bytes, total;
    if (!o->pictures || !pictures_cross(o->pictures))
        return 0;
    if (pictures_reserve_shown(o->pictures, 0, o->kv_dtype, e) ||
        (o->comm->world > 1 && o->comm->ops->barrier(o->comm, e)) ||
        o->ops->memory(o->dev, &free_bytes, &total, e))
        return -1;
    uint32_t n = warmup_shown_blocks(g, w, free_bytes, total);
    if (kv_agree(o->comm, &n, e) || pictures_reserve_shown(o->pictures, n, o->kv_dtype, e))
        return err_wrap(e, "the keys and values for cross-attention");
    LOG(LOG_INFO, "keys and values for cross-attention", LOGI("blocks", n),
        LOGI("of_the_largest", n / pictures_shown_most(o->pictures)),
        LOGI("bytes", n * pictures_shown_bytes(o->pictures, o->kv_dtype)));
    return 0;
}

/* Reserves scratch memory of the largest step without computing it: on a CPU a trial prefill of
 * that length may take minutes. */
static int reserve(struct engine *g, const struct warmup *w, struct err *e)
{
    const uint32_t rows = warmup_rows(g, w);
    uint32_t tokens = g->max_prefill + rows;
    if (g->o.pictures && pictures_reserve(g->o.pictures, g->max_prefill, e))
        return err_wrap(e, "the memory that pictures of %u tokens take", g->max_prefill);
    if (reserve_shown(g, w, e))
        return -1;
    if (model_reserve(g->o.model, tokens, rows, e) || stepper_reserve(&g->step, tokens, rows, e) ||
        stepper_reserve_ahead(&g->step, rows, e))
        return err_wrap(e,
                        "Not enough memory to handle %u prefill tokens. You need to decrease "
                        "`--max-batch-prefill-tokens`: they take %llu bytes",
                        g->max_prefill,
                        (unsigned long long)model_scratch_bytes(g->o.model, tokens, rows));
    return 0;
}

/* True if sliding-window layers get a separate cache. The caller of the warm-up must support it,
 * and requests must be several times as long as the window for it to pay. False with a swap
 * region or recurrent state. */
static bool warmup_windows(const struct engine *g, const struct warmup *w)
{
    const struct model_info *m = model_info(g->o.model);
    return w->windows && m->kv_window && !m->state_bytes && !g->o.swap_bytes &&
           kv_windows_pay(m->kv_window, warmup_longest(g, w));
}

/* The backend's own memory for such steps. */
static int rehearse(struct engine *g, const struct warmup *w, struct err *e)
{
    const struct engine_options *o = &g->o;
    const uint32_t rows = warmup_rows(g, w);
    if (model_rehearse(o->model, g->max_prefill + rows, rows, warmup_longest(g, w), o->block_size,
                       o->kv_dtype, warmup_windows(g, w), e))
        return err_wrap(e, "the workspaces of %u prefill tokens", g->max_prefill);
    return 0;
}

/* True if siblings of drafts are possible: all state of a sequence is in blocks, which can be
 * copied, and the host samples. */
static bool siblings_fit(const struct engine *g, uint32_t n_windows)
{
    const struct model_info *m = model_info(g->o.model);
    return g->drafting.heads && !n_windows && !m->state_bytes && !m->by_length && !g->step.draws;
}

/* Allocates both caches, and scratch blocks for siblings after those of the router. */
static int resize_kv(struct engine *g, uint32_t n_blocks, uint32_t n_windows, struct err *e)
{
    const uint32_t more = siblings_fit(g, n_windows) ? SIBLINGS_MOST : 0;
    g->n_blocks = g->n_windows = g->step.window = 0;
    if (model_kv_resize_apart(g->o.model, n_blocks + more, n_windows, g->o.block_size,
                              g->o.kv_dtype, e))
        return -1;
    g->siblings = (struct siblings){.first = more ? n_blocks : 0};
    g->drafting.siblings = more ? &g->siblings : NULL;
    if (more && heads_want_second(&g->heads, e))
        return -1;
    g->n_blocks = n_blocks;
    g->n_windows = n_windows;
    g->step.window = n_windows ? model_info(g->o.model)->kv_window : 0;
    return 0;
}

static int resize_cells(struct engine *g, uint32_t n, struct err *e)
{
    const bool any = model_info(g->o.model)->state_bytes > 0;
    if (!any)
        return 0;
    return state_cells_resize(&g->cells, n, e) || model_state_resize(g->o.model, n, e) ? -1 : 0;
}

/* Runs a short real step, so that errors appear now instead of in the first request. */
static int trial(struct engine *g, const struct warmup *w, struct err *e)
{
    struct seq_spec s = w->specs[0];
    struct answer a;
    if (s.n_prompt > TRIAL_TOKENS)
        s.n_prompt = TRIAL_TOKENS;
    s.max_new_tokens = 1;
    s.blocks = s.slots = NULL;
    s.n_blocks = s.n_slots = 0;
    s.cells = s.state_from = NULL;
    s.n_cells = 0;
    if (resize_kv(g, blocks_for(g, &s), 0, e) || resize_cells(g, CELLS_EACH, e) ||
        engine_prefill(g, 0, &s, 1, NULL, NULL, &a, e))
        return err_wrap(e, "warm-up");
    if (a.out->n_gen && a.out->gen[0].seq->error[0])
        return err_set(e, ERR_SYSTEM, "warm-up: %s", a.out->gen[0].seq->error);
    engine_clear(g, NULL);
    return 0;
}

/* Rotations extrapolate beyond the trained length, with poor quality; a table of positions
 * ends. */
int warmup_check(const struct engine *g, const struct warmup *w, struct err *e)
{
    const struct model_info *m = model_info(g->o.model);
    uint32_t longest = warmup_longest(g, w);
    if (w->max_input_tokens > warmup_input(g, UINT32_MAX))
        return err_set(e, ERR_VALIDATION,
                       "--max-input-tokens %u: this model's encoder has %u positions",
                       w->max_input_tokens, m->text_positions);
    if (!m->max_positions || longest <= m->max_positions)
        return 0;
    if (m->bounded)
        return err_set(e, ERR_VALIDATION, "--max-total-tokens %u: this model has %u positions",
                       longest, m->max_positions);
    LOG(LOG_WARN, "max_total_tokens is beyond what this model was trained for",
        LOGI("max_total_tokens", longest), LOGI("max_positions", m->max_positions));
    return 0;
}

uint32_t warmup_adapter_pages(const struct engine *g, uint64_t free_bytes, uint64_t *all)
{
    const struct engine_options *o = &g->o;
    const struct adapters *a = model_adapters(o->model);
    *all = 0;
    for (uint32_t i = 1; i <= adapters_count(a); i++)
        *all += adapters_pages(a, i);
    uint64_t share = (uint64_t)(o->adapter_fraction * (double)free_bytes) / adapters_page_bytes(a);
    share /= engine_ranks_here(g);
    if (adapters_free_places(a) && share > *all)
        *all = share < UINT32_MAX ? share : UINT32_MAX;
    return (uint32_t)(share < *all ? share : *all);
}

int warmup_reserve_adapters(struct engine *g, struct warmup *w, struct err *e)
{
    const struct engine_options *o = &g->o;
    struct adapters *a = model_adapters(o->model);
    uint64_t free_bytes, total, all = 0;
    if (!a)
        return 0;
    w->adapter_pages = adapters_reserved(a);
    if (w->adapter_pages)
        return 0;
    if (o->comm->world > 1 && o->comm->ops->barrier(o->comm, e)) /* all have taken theirs */
        return -1;
    if (o->ops->memory(o->dev, &free_bytes, &total, e))
        return -1;
    uint32_t pages = warmup_adapter_pages(g, free_bytes, &all);
    if (kv_agree(o->comm, &pages, e) || adapters_reserve(a, pages, e))
        return -1;
    LOG(LOG_INFO, "adapters", LOGI("count", adapters_count(a)), LOGI("pages", pages),
        LOGI("pages_of_all", all), LOGI("page_bytes", adapters_page_bytes(a)));
    w->adapter_pages = pages;
    return 0;
}

struct kv_memory warmup_memory(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                               uint64_t total, uint64_t reserved)
{
    const struct engine_options *o = &g->o;
    const uint32_t ranks = engine_ranks_here(g);
    struct kv_memory m = {.shared = engine_in_host_memory(g),
                          .free = free_bytes,
                          .total = total,
                          .world = (uint32_t)(o->comm->world / o->comm->nodes),
                          .fraction = o->memory_fraction,
                          .limit = o->kv_limit,
                          .block_size = o->block_size,
                          .longest = warmup_longest(g, w),
                          .cell_bytes = model_info(o->model)->state_bytes,
                          .requests = w->n,
                          .block_bytes =
                              model_kv_block_bytes(o->model, o->block_size, o->kv_dtype)};
    if (warmup_windows(g, w)) {
        const struct kv_apart each = model_kv_apart(o->model, o->block_size, o->kv_dtype);
        m.block_bytes = each.blocks;
        m.window_bytes = each.windows;
        m.window = model_info(o->model)->kv_window;
        m.prefill = w->max_prefill_tokens ? w->max_prefill_tokens : DEFAULT_PREFILL;
    }
    uint64_t taken = reserved * ranks; /* the swap region uses the same memory */
    taken += m.shared ? (o->swap_bytes + o->offload_bytes) * ranks : 0;
    m.free -= taken < m.free ? taken : m.free;
    return m;
}

static int size_pool(struct engine *g, const struct warmup *w, struct kv_plan *plan, struct err *e)
{
    const struct engine_options *o = &g->o;
    uint64_t free_bytes, total, scratch = 0;
    if (o->comm->world > 1 && o->comm->ops->barrier(o->comm, e)) /* all have taken theirs */
        return -1;
    if (o->ops->memory(o->dev, &free_bytes, &total, e))
        return -1;
    if (engine_in_host_memory(g)) { /* reserved, but not touched yet */
        struct adapters *a = model_adapters(o->model);
        scratch = model_scratch_held(o->model);
        scratch += model_info(o->model)->mapped_bytes; /* page cache, which counts as free */
        scratch += a ? adapters_reserved(a) * adapters_page_bytes(a) : 0;
        scratch += o->pictures ? pictures_shown_blocks(o->pictures) *
                                     pictures_shown_bytes(o->pictures, o->kv_dtype)
                               : 0;
    }
    const struct kv_memory m = warmup_memory(g, w, free_bytes, total, scratch);
    *plan = kv_plan(&m);
    if (kv_agree(o->comm, &plan->n_blocks, e) ||
        (m.cell_bytes && kv_agree(o->comm, &plan->n_cells, e)) ||
        (m.window && kv_agree(o->comm, &plan->n_windows, e)))
        return -1;
    plan->bytes = plan->n_blocks * m.block_bytes + plan->n_windows * m.window_bytes;
    LOG(LOG_INFO, "KV cache", LOGI("blocks", plan->n_blocks), LOGI("block_size", o->block_size),
        LOGI("tokens", (uint64_t)plan->n_blocks * o->block_size), LOGI("bytes", plan->bytes),
        LOGS("decided_by", plan->why), LOGI("free", m.free), LOGI("total", m.total),
        LOGI("block_bytes", m.block_bytes), LOGS("dtype", kv_dtype_name(o->kv_dtype)));
    if (m.window)
        LOG(LOG_INFO, "KV cache of windows", LOGI("blocks", plan->n_windows),
            LOGI("window", m.window), LOGI("block_bytes", m.window_bytes),
            LOGI("bytes", plan->n_windows * m.window_bytes));
    if (m.cell_bytes)
        LOG(LOG_INFO, "recurrent state", LOGI("cells", plan->n_cells),
            LOGI("cell_bytes", m.cell_bytes), LOGI("bytes", plan->n_cells * m.cell_bytes));
    return 0;
}

/* The error for too little memory: what uses it, and which options reduce it. */
static int too_little(const struct engine *g, const struct warmup *w, uint64_t before,
                      const struct kv_plan *plan, struct err *e)
{
    const struct engine_options *o = &g->o;
    uint64_t left, total, longest = warmup_longest(g, w);
    if (o->ops->memory(o->dev, &left, &total, e))
        return -1;
    const struct kv_memory m = warmup_memory(g, w, left, total, 0);
    const struct kv_short s = {.total = total,
                               .weights = model_info(o->model)->weight_bytes,
                               .workspaces = before > left ? before - left : 0,
                               .left = plan->bytes,
                               .longest = longest,
                               .longest_bytes = kv_request_bytes(&m, (uint32_t)longest)};
    return kv_too_little(&s, e);
}

/* ---------------------------------------------------------------- what another row costs */

enum {
    TIMED = 3,
    TIMED_DRAFTS = 8,
    TIMED_PASSES = 2,
    TIMED_TOKENS = 2 + TIMED_PASSES + TIMED * (TIMED_DRAFTS + 3)
};

static int ended_early(const struct seq *s, struct err *e)
{
    bool said = s && s->error[0];
    return err_set(e, ERR_SYSTEM, "warm-up: %s", said ? s->error : "it ended early");
}

/* One timed decode step that verifies `drafts` drafts. */
static int timed_step(struct engine *g, struct seq *s, uint32_t drafts, int64_t *least,
                      struct err *e)
{
    static const uint32_t any[TIMED_DRAFTS];
    struct answer a;
    g->drafting.most = drafts;
    if (seq_offer(s, s->n, any, drafts, e) || engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, e))
        return -1;
    if (s->error[0] || !a.batch)
        return ended_early(s, e);
    *least = a.out->forward_ns < *least ? a.out->forward_ns : *least;
    return 0;
}

/* Timed passes of the draft head after a step. */
static int timed_passes(struct engine *g, struct seq *s, int64_t *least, struct err *e)
{
    struct step_worth w = {.rows = 1, .tokens = 1};
    int64_t ignored = INT64_MAX;
    if (!g->drafting.heads)
        return 0;
    if (timed_step(g, s, 0, &ignored, e))
        return -1;
    if (!heads_ready(&g->heads, s))
        return 0;
    s->head.most = TIMED_PASSES;
    s->proposed = 0;
    const int64_t t0 = clock_ns();
    if (heads_propose(&g->heads, &s, 1, &w, e))
        return -1;
    const int64_t each = (clock_ns() - t0) / (s->head.n_made ? s->head.n_made : 1);
    *least = each < *least ? each : *least;
    s->head.most = 0;
    return 0;
}

/* The cost relative to a step; the ranks agree on it. */
static int agree_cost(struct engine *g, int64_t more, int64_t one, double *cost, struct err *e)
{
    const double c = (double)more / (double)(one > 0 ? one : 1);
    uint32_t millionths = (uint32_t)(1e6 * (c < 0.002 ? 0.002 : c < 1 ? c : 1));
    if (kv_agree(g->o.comm, &millionths, e))
        return -1;
    *cost = millionths / 1e6;
    return 0;
}

/* Times steps of one sequence with and without drafts. The ranks agree on the smallest cost that
 * any of them measured. */
static int measure_rows(struct engine *g, const struct warmup *w, struct err *e)
{
    struct seq_spec s = w->specs[0];
    struct answer a;
    int64_t one = INT64_MAX, more = INT64_MAX, pass = INT64_MAX;
    const uint32_t most = g->drafting.most;
    int rc = 0;
    s.n_prompt = 1;
    s.max_new_tokens = TIMED_TOKENS;
    s.min_new_tokens = TIMED_TOKENS;
    s.blocks = s.slots = NULL;
    s.n_blocks = s.n_slots = 0;
    if (blocks_for(g, &s) > g->n_blocks || (g->n_windows && blocks_for(g, &s) >= g->n_windows))
        return 0;
    g->drafting.most = 0;
    g->drafting.cost = 0; /* all that is offered */
    if (engine_prefill(g, 0, &s, 1, NULL, NULL, &a, e))
        return err_wrap(e, "warm-up");
    if (!a.batch)
        return ended_early(a.out->n_gen ? a.out->gen[0].seq : NULL, e);
    for (int i = 0; i < TIMED && rc == 0; i++)
        rc = timed_step(g, a.batch->v[0], 0, &one, e) ||
             timed_step(g, a.batch->v[0], TIMED_DRAFTS, &more, e) ||
             timed_passes(g, a.batch->v[0], &pass, e);
    engine_clear(g, NULL);
    g->drafting.most = most;
    g->drafting.cost = DRAFT_COST;
    if (rc)
        return -1;
    if (agree_cost(g, (more - one) / TIMED_DRAFTS, one, &g->drafting.cost, e) ||
        (g->drafting.heads && agree_cost(g, pass < one ? pass : one, one, &g->heads.pass_cost, e)))
        return -1;
    LOG(LOG_INFO, "speculation", LOGI("most", most), LOGD("row_cost", g->drafting.cost),
        LOGS("head", g->heads.of.kind ? g->heads.of.kind : "none"),
        LOGD("pass_cost", g->heads.pass_cost));
    return 0;
}

/* Limits of one request: as given, or what memory and model allow. */
static void find_limits(const struct engine *g, struct warmup *w)
{
    w->supported_tokens = g->n_blocks * g->o.block_size;
    if (!w->max_total_tokens) {
        bool asked = g->o.max_total_tokens > 0;
        w->max_total_tokens = warmup_longest(g, w);
        if (!w->max_total_tokens || (!asked && w->supported_tokens < w->max_total_tokens))
            w->max_total_tokens = w->supported_tokens;
    }
    if (!w->max_input_tokens)
        w->max_input_tokens = warmup_input(g, w->max_total_tokens - 1);
}

enum { MOST_SLOTS = 1 << 24 };

static int make_swap(struct engine *g, struct warmup *w, struct err *e)
{
    const struct engine_options *o = &g->o;
    if (o->swap_bytes && g->cells.n) {
        log_msg(LOG_INFO, "the swap region is off: this model has recurrent state");
        return 0;
    }
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
    if (model_info(g->o.model)->task != TASK_GENERATE)
        return engine_embed_warmup(g, w, e);
    engine_clear(g, NULL);
    g->n_slots = 0;
    g->max_prefill = w->max_prefill_tokens ? w->max_prefill_tokens : DEFAULT_PREFILL;
    if (g->max_prefill > INT32_MAX / 2)
        return err_set(e, ERR_VALIDATION, "%u prefill tokens are too many", g->max_prefill);
    g->max_chunk = w->max_chunk_tokens && w->max_chunk_tokens < g->max_prefill ? w->max_chunk_tokens
                                                                               : g->max_prefill;
    uint64_t before, total;
    if (warmup_check(g, w, e) || g->o.ops->memory(g->o.dev, &before, &total, e) ||
        reserve(g, w, e) || warmup_reserve_adapters(g, w, e) || (w->n && trial(g, w, e)) ||
        rehearse(g, w, e) || size_pool(g, w, &plan, e)) {
        engine_note_failure(g);
        return -1;
    }
    g->n_blocks = 0;
    if (plan.n_blocks < 2 || (warmup_windows(g, w) && plan.n_windows < 2))
        return too_little(g, w, before, &plan, e);
    const int64_t start = clock_ns();
    if (resize_kv(g, plan.n_blocks, plan.n_windows, e))
        return -1;
    w->window_blocks = g->n_windows;
    w->window_tokens = g->step.window;
    if (resize_cells(g, plan.n_cells, e))
        return err_wrap(e, "recurrent state");
    w->kv_ns = clock_ns() - start;
    w->state_cells = g->cells.n > CELLS_EACH ? g->cells.n - CELLS_EACH : 0;
    if (g->drafting.most && g->o.row_cost <= 0 && w->n && measure_rows(g, w, e)) {
        engine_note_failure(g);
        return -1;
    }
    heads_start(&g->heads, g->o.row_cost <= 0);
    if (heads_any(&g->heads))
        LOG(LOG_INFO, "draft head", LOGS("kind", g->heads.of.kind));
    find_limits(g, w);
    return make_swap(g, w, e);
}
