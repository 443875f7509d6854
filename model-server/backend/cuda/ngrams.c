/* ngrams.c - records embeddings of hashed n-grams: ngrams.cu, then the rows as in other tables. */
#include "model-server/backend/cuda/cuda.h"
#include <assert.h>
#include <string.h>

void cuda_embed_ngrams(struct device *d, float *y, const struct weight *w,
                       const struct state_ref *s, const struct ngrams *p)
{
    const uint32_t tokens = d->batch->n_tokens;
    struct ngrams_args a = {.rows = p->rows,
                            .base = s->base,
                            .ids = d->b.ids,
                            .tables = p->tables,
                            .spans = d->b.spans,
                            .span_of = d->b.span_of,
                            .stride = s->stride,
                            .most = p->most,
                            .n = p->n,
                            .end = p->end,
                            .tokens = tokens,
                            .n_spans = d->batch->n_spans};
    const struct embed_args of = {
        .y = y, .w = w->m, .index = p->rows, .rows = tokens * p->n, .scale = 1.0f};
    assert(p->most >= 2 && p->most <= NGRAM_IDS);
    memcpy(a.by, p->by, sizeof(a.by));
    RECORD(d, ngrams_launch, a);
    RECORD(d, ngrams_keep_launch, a);
    RECORD(d, embed_launch, of);
}
