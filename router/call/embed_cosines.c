/* Similarity of vectors and of lists of vectors (MaxSim). */
#include "router/call/embed.h"
#include <string.h>

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float best_cosines(const float *query, uint32_t n_query, const float *document,
                          uint32_t n_document, uint32_t width)
{
    float sum = 0;
    for (uint32_t i = 0; i < n_query; i++) {
        float best = -1;
        for (uint32_t k = 0; k < n_document; k++) {
            const float x = dot(query + (size_t)i * width, document + (size_t)k * width, width);
            best = x > best ? x : best;
        }
        sum += best;
    }
    return sum;
}

void late_skip_of(const struct call *c, enum text_late kind, struct late_skip *out)
{
    const struct sentence_late *l = &c->edge->sentence.late;
    out->n = 0;
    if (kind == LATE_NONE || (kind == LATE_QUERY && !l->skips_queries))
        return;
    for (uint32_t i = 0; i < l->n_skipped; i++) {
        const int64_t id = tokenizer_id(c->edge->tokenizer, l->skipped[i]);
        if (id >= 0)
            out->ids[out->n++] = (uint32_t)id;
    }
}

uint32_t late_rows(const struct call *c, const struct late_skip *skip, uint32_t i, float *rows)
{
    const struct embed_job *j = &c->texts->job;
    const struct embed_text *t = &j->texts[i];
    const size_t width = j->width;
    uint32_t n = 0;
    for (uint32_t k = edge_limits(c->edge)->first_row; k < t->n; k++) {
        uint32_t at = 0;
        while (at < skip->n && skip->ids[at] != t->ids[k])
            at++;
        if (at < skip->n)
            continue;
        if (n < k)
            memcpy(rows + n * width, rows + k * width, width * sizeof(*rows));
        n++;
    }
    return n;
}

/* The vectors of a text. */
struct vectors {
    const float *rows;
    uint32_t n;
};

float *texts_cosines(struct call *c, uint32_t n_first, uint32_t n)
{
    const struct embed_job *j = &c->texts->job;
    const uint32_t width = j->width;
    if (c->edge->sentence.listwise && j->all)
        return texts_list_scores(c, n_first, n);
    float *score = ARENA_NEW(&c->arena, float, n + (size_t)1), *row = j->values;
    struct vectors *v = ARENA_NEW(&c->arena, struct vectors, (size_t)n_first + n + 1);
    struct late_skip skip[2];
    if (!score || !v)
        return NULL;
    late_skip_of(c, LATE_QUERY, &skip[0]);
    late_skip_of(c, LATE_DOCUMENT, &skip[1]);
    for (uint32_t i = 0; i < n_first + n; i++) {
        v[i] = (struct vectors){row, j->all ? late_rows(c, &skip[i >= n_first], i, row) : 1};
        for (uint32_t k = 0; k < v[i].n; k++)
            texts_normalize(row + (size_t)k * width, width);
        row += (size_t)width * (j->all ? j->texts[i].n : 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct vectors *q = &v[n_first == 1 ? 0 : i], *d = &v[n_first + i];
        score[i] = best_cosines(q->rows, q->n, d->rows, d->n, width);
    }
    return score;
}

int texts_ask_vectors(struct call *c, struct texts_ask *ask, struct text_input *in,
                      uint32_t n_first, struct err *e)
{
    ask->in = in;
    ask->all = edge_limits(c->edge)->task == TASK_TOKEN_EMBED;
    ask->plain = true;
    if (ask->all && c->edge->sentence.listwise)
        return texts_ask_lists(c, ask, in, n_first, e);
    for (uint32_t i = 0; ask->all && i < ask->n; i++)
        in[i].late = i < n_first ? LATE_QUERY : LATE_DOCUMENT;
    return 0;
}
