/* select.c - sparse attention's indexer: which kernels run on which tokens. */
#include "model-server/backend/cuda/cuda.h"

/* Of the scores of the tokens that are selected for at a time. */
enum { SCORES_BYTES = 32 << 20 };

static void store_keys(struct device *d, float *q, float *k, const struct kv_cache *cache,
                       uint32_t layer, const struct select_keys *p)
{
    const struct index_args a = {.q = q,
                                 .k = k,
                                 .rope = p->rot_dim ? p->rope : NULL,
                                 .slots = d->b.slots,
                                 .kv = kv_index_view(cache, layer),
                                 .tokens = d->batch->n_tokens,
                                 .n_heads = p->n_heads,
                                 .dim = p->dim,
                                 .rot_at = p->rot_at,
                                 .rot_dim = p->rot_dim,
                                 .interleaved = p->interleaved,
                                 .turned = p->turned};
    RECORD(d, index_launch, a);
}

void cuda_select_keys(struct device *d, uint32_t *top, float *q, float *k, struct kv_cache *cache,
                      uint32_t layer, const struct select_keys *p)
{
    const struct ragged *b = d->batch;
    uint32_t longest = 0;
    store_keys(d, q, k, cache, layer, p);
    for (uint32_t i = 0; i < b->n_spans; i++)
        longest = b->spans[i].kv_len > longest ? b->spans[i].kv_len : longest;
    if (!select_some_of(p, longest))
        return;
    /* rounded up, so that a graph is valid for longer */
    const uint32_t pitch = power_of_two((longest + INDEX_KEYS - 1) / INDEX_KEYS) * INDEX_KEYS;
    const uint32_t sets = select_by_head(p) ? p->n_heads : 1;
    const size_t each = (size_t)pitch * sets * sizeof(float);
    const size_t most = SCORES_BYTES / each, some = most ? most : 1;
    const uint32_t rows = b->n_tokens < some ? b->n_tokens : (uint32_t)some;
    struct select_args a = {.chosen = top,
                            .scores = cuda_work(d, WORK_SELECT, rows * each),
                            .q = q,
                            .weights = p->weights,
                            .kv = kv_index_view(cache, layer),
                            .spans = d->b.spans,
                            .tables = d->b.tables,
                            .span_of = d->b.span_of,
                            .n_heads = p->n_heads,
                            .dim = p->dim,
                            .top = p->top,
                            .block = p->block,
                            .local = p->local,
                            .sets = sets,
                            .pooled = p->pooled,
                            .complete = p->complete,
                            .by_head = select_by_head(p),
                            .pitch = pitch};
    for (; a.scores && a.first < b->n_tokens; a.first += a.rows) {
        a.rows = b->n_tokens - a.first < rows ? b->n_tokens - a.first : rows;
        RECORD(d, index_score_launch, a);
        RECORD(d, index_choose_launch, a);
    }
}
