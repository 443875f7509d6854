#include "model-server/model/taps.h"
#include "model-server/model/decoder_impl.h"
#include <stdlib.h>

void neighbours_free(struct neighbours *c) { free(c->rows), free(c->marks); }

static int reserve(struct neighbours *c, uint32_t n, struct err *e)
{
    if (n <= c->cap)
        return 0;
    neighbours_free(c);
    c->cap = 0;
    c->rows = malloc(n * sizeof(*c->rows));
    c->marks = malloc(n * sizeof(*c->marks));
    if (!c->rows || !c->marks)
        return err_nomem(e);
    c->cap = n;
    return 0;
}

int neighbours_begin(struct decoder *d, struct neighbours *c, const struct ragged *b, int64_t by,
                     uint32_t *n, struct err *e)
{
    *n = 0;
    if (reserve(c, b->n_tokens, e))
        return -1;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (uint32_t k = 0; k < s->n; k++) {
            const int64_t at = k + by;
            const bool has = at >= 0 && at < s->n;
            c->marks[s->first + k] = has ? (const float *)b : NULL; /* not read */
            if (has)
                c->rows[(*n)++] = s->first + (uint32_t)at;
        }
    }
    if (!*n)
        return 0;
    c->step = *b;
    c->step.out_rows = c->rows, c->step.n_out = *n;
    c->step.given = c->marks;
    return decoder_next_step(d, &c->step, e);
}

/* Marks are of the host, and the next ones overwrite them. */
int neighbours_end(struct decoder *d, const struct ragged *b, struct err *e)
{
    return decoder_next_step(d, b, e);
}

int neighbours_sum(struct decoder *d, struct neighbours *c, const struct ragged *b, float *sum,
                   const float *x, uint32_t n, float *const *by, uint32_t taps, float *part,
                   struct err *e)
{
    const uint32_t t = b->n_tokens, half = taps / 2;
    d->ops->beside(d->dev, sum, x, NULL, t, n);
    layer_times(d, sum, t, n, by[half]);
    for (uint32_t j = 0; j < taps; j++) {
        uint32_t some = 0;
        if (j != half && neighbours_begin(d, c, b, (int64_t)j - half, &some, e))
            return -1;
        if (!some)
            continue;
        d->ops->gather_out(d->dev, part, x, n);
        layer_times(d, part, some, n, by[j]);
        d->ops->give_rows(d->dev, sum, part, n, true);
        if (neighbours_end(d, b, e))
            return -1;
    }
    return 0;
}

void taps_free(struct decoder *d, struct taps *c)
{
    for (uint32_t j = 0; j < c->n; j++)
        layer_free_weight(d, c->w[j]);
    d->ops->free(d->dev, c->bias);
    neighbours_free(&c->rows);
}

int taps_run(struct decoder *d, struct taps *c, const struct ragged *b, float *y, const float *x,
             float *some, float *part, struct err *e)
{
    const uint32_t half = c->n / 2;
    d->ops->linear(d->dev, y, x, b->n_tokens, c->w[half], c->bias);
    for (uint32_t j = 0; j < c->n; j++) {
        uint32_t n = 0;
        if (j != half && neighbours_begin(d, &c->rows, b, (int64_t)j - half, &n, e))
            return -1;
        if (!n)
            continue;
        d->ops->gather_out(d->dev, some, x, c->in);
        d->ops->linear(d->dev, part, some, n, c->w[j], NULL);
        d->ops->give_rows(d->dev, y, part, c->out, true);
        if (neighbours_end(d, b, e))
            return -1;
    }
    return 0;
}
