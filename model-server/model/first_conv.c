#include "model-server/model/first_conv.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader.h"
#include <assert.h>
#include <stdlib.h>

enum { MOST = 63 }; /* as configured */

struct first_conv {
    uint32_t n;       /* tokens, an odd number */
    struct norm norm; /* [hidden] */
    float *bias;      /* [hidden] */
    uint32_t cap;
    uint32_t *rows;         /* [cap] rows of a step that are read */
    const float **marks;    /* [cap] not NULL: rows that are written */
    struct weight *w[MOST]; /* [n] of [hidden, hidden] */
};

struct first_conv *first_conv_load(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->first_conv, hidden = s->hidden;
    struct first_conv *c = calloc(1, sizeof(*c));
    assert(n <= MOST);
    if (!c) {
        loader_nomem(l);
        return NULL;
    }
    c->n = n;
    l->hold = true;
    const struct mat_part all =
        loader_table(l, W_FIRST_CONV, NO_LAYER, ".weight", hidden, (int64_t)hidden * n);
    for (uint32_t j = 0; j < n && !l->failed; j++) {
        struct mat_part p = loader_cut(all, 0, hidden, j, hidden);
        p.col_stride *= n; /* the token's dimension is the last one */
        c->w[j] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
    c->bias = loader_bias(l, W_FIRST_CONV, NO_LAYER, hidden);
    c->norm = loader_norm(l, W_FIRST_CONV_NORM, NO_LAYER);
    return c;
}

void first_conv_free(struct decoder *d, struct first_conv *c)
{
    if (!c)
        return;
    for (uint32_t j = 0; j < c->n; j++)
        layer_free_weight(d, c->w[j]);
    layer_free_norm(d, &c->norm);
    d->ops->free(d->dev, c->bias);
    free(c->rows), free(c->marks);
    free(c);
}

static int reserve(struct first_conv *c, uint32_t n, struct err *e)
{
    if (n <= c->cap)
        return 0;
    free(c->rows), free(c->marks);
    c->cap = 0;
    c->rows = malloc(n * sizeof(*c->rows));
    c->marks = malloc(n * sizeof(*c->marks));
    if (!c->rows || !c->marks)
        return err_nomem(e);
    c->cap = n;
    return 0;
}

/* Rows t + by of the texts of `b`, for all t that have one; returns their number. */
static uint32_t mark(struct first_conv *c, const struct ragged *b, int64_t by)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (uint32_t k = 0; k < s->n; k++) {
            const int64_t at = k + by;
            const bool has = at >= 0 && at < s->n;
            c->marks[s->first + k] = has ? (const float *)b : NULL; /* not read */
            if (has)
                c->rows[n++] = s->first + (uint32_t)at;
        }
    }
    return n;
}

int first_conv_run(struct decoder *d, struct first_conv *c, const struct ragged *b, struct err *e)
{
    const uint32_t hidden = d->spec.hidden, half = c->n / 2;
    struct scratch *s = &d->scratch;
    if (reserve(c, b->n_tokens, e))
        return -1;
    d->ops->linear(d->dev, s->embedded, s->x, b->n_tokens, c->w[half], c->bias);
    for (uint32_t j = 0; j < c->n; j++) {
        const uint32_t n = j == half ? 0 : mark(c, b, (int64_t)j - half);
        struct ragged step = *b;
        if (!n)
            continue;
        step.out_rows = c->rows, step.n_out = n;
        step.given = c->marks;
        if (decoder_next_step(d, &step, e))
            return -1;
        d->ops->gather_out(d->dev, s->n, s->x, hidden);
        d->ops->linear(d->dev, s->r, s->n, n, c->w[j], NULL);
        d->ops->give_rows(d->dev, s->embedded, s->r, hidden, true);
        if (decoder_next_step(d, b,
                              e)) /* its marks are of the host, and the next ones overwrite them */
            return -1;
    }
    d->ops->act(d->dev, s->embedded, b->n_tokens, hidden, d->spec.first_conv_act);
    return 0;
}

void first_conv_add(struct decoder *d, const struct first_conv *c, uint32_t t)
{
    struct scratch *s = &d->scratch;
    const uint32_t hidden = d->spec.hidden;
    d->ops->add_norm(d->dev, NULL, s->x, s->embedded, 1, t, hidden, NULL);
    d->ops->norm(d->dev, s->x, s->x, t, hidden, &c->norm);
}
