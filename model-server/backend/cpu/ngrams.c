/* ngrams.c - embeddings of hashed n-grams: the row of each token in each table, then the rows. */
#include "model-server/backend/cpu/cpu.h"
#include <assert.h>
#include <string.h>

struct ngrams_job {
    const struct device *d;
    float *y;
    const struct weight *w;
    const struct state_ref *s;
    const struct ngrams *p;
};

/* id[i] = the id `i` tokens before token `t` of the span; `known`: those before the span, the
 * oldest first. */
static void ids_before(const struct ngrams_job *j, const struct span *s, const uint32_t *known,
                       uint32_t t, uint32_t *id)
{
    const struct ngrams *p = j->p;
    bool ended = false;
    for (uint32_t i = 0; i < p->most; i++) {
        const uint32_t own =
            i <= t ? j->d->batch->ids[s->first + t - i] : known[p->most - 1 + t - i];
        id[i] = ended ? p->end : own;
        ended |= i > 0 && own == p->end;
    }
}

/* The rows of a span's tokens, and its last ids. Both cells may be one. */
static void hash_spans(void *arg, int thread, size_t begin, size_t end)
{
    const struct ngrams_job *j = arg;
    const struct ngrams *p = j->p;
    const size_t bytes = (size_t)ngram_floats(p) * sizeof(float);
    (void)thread;
    for (size_t at = begin; at < end; at++) {
        const struct span *s = &j->d->batch->spans[at];
        uint32_t known[NGRAM_IDS] = {0}, id[NGRAM_IDS + 1] = {0};
        for (uint32_t i = 0; i < p->most; i++)
            known[i] = p->end;
        if (s->kv_len > s->n)
            memcpy(known, j->s->base + s->state_in * j->s->stride, bytes);
        for (uint32_t t = 0; t < s->n; t++) {
            ids_before(j, s, known, t, id);
            for (uint32_t k = 0; k < p->n; k++)
                p->rows[(size_t)(s->first + t) * p->n + k] = ngram_row(&p->tables[k], p->by, id);
        }
        for (uint32_t i = 0, last = p->most - 1; i < last; i++)
            id[i] =
                s->n + i >= last ? j->d->batch->ids[s->first + s->n + i - last] : known[s->n + i];
        memcpy(j->s->base + s->state_out * j->s->stride, id, bytes);
    }
}

static void take_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct ngrams_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        j->w->kind->row(j->y + i * j->w->cols, j->w, j->p->rows[i], 0, j->w->cols);
}

void cpu_embed_ngrams(struct device *d, float *y, const struct weight *w, const struct state_ref *s,
                      const struct ngrams *p)
{
    enum { ROWS_AT_ONCE = 64 };
    struct ngrams_job j = {d, y, w, s, p};
    assert(p->most >= 2 && p->most <= NGRAM_IDS);
    pool_run(d->pool, hash_spans, &j, d->batch->n_spans, 1);
    pool_run(d->pool, take_rows, &j, (size_t)d->batch->n_tokens * p->n, ROWS_AT_ONCE);
}
