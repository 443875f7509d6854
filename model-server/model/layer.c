/* layer.c - shared by the sublayers of mixer/ and ffn/. */
#include "model-server/model/layer.h"
#include "model-server/model/decoder.h"

void layer_project(struct decoder *d, uint32_t layer, const struct projection *p, float *y,
                   const float *x, uint32_t x_width, uint32_t rows)
{
    const struct clip *c = p->clip;
    if (c && c->in_low) {
        d->ops->clip(d->dev, p->clipped, x, rows, x_width, c->in_low, c->in_high);
        x = p->clipped;
    }
    d->ops->linear(d->dev, y, x, rows, p->w, p->bias);
    if (d->adapters)
        d->ops->lora(d->dev, y, p->width, x, x_width, adapters_sets(d->adapters, layer, p->site));
    if (c && c->out_low)
        d->ops->clip(d->dev, y, y, rows, p->width, c->out_low, c->out_high);
}

void layer_update(struct decoder *d, const struct low_rank *r, struct work *w, float *y,
                  uint32_t width, const float *x, uint32_t rows)
{
    float *low = work_take(w, rows, r->rank), *more = work_take(w, rows, width);
    d->ops->linear(d->dev, low, x, rows, r->down, NULL);
    d->ops->linear(d->dev, more, low, rows, r->up, NULL);
    d->ops->add_norm(d->dev, NULL, y, more, 1, rows, width, NULL);
}

void layer_times(struct decoder *d, float *x, uint32_t rows, uint32_t n, const float *by)
{
    const struct gate_norm p = {.kind = GATE_PRODUCT, .gate = by, .stride = 0}; /* one for all */
    d->ops->gate_norm(d->dev, x, n, rows, n, &p);
}

int layer_norm_parts(struct decoder *d, float *x, uint32_t rows, uint32_t n, struct gate_norm p,
                     float *squares, struct err *e)
{
    d->ops->row_squares(d->dev, squares, x, n, rows, n, 0);
    if (layer_sum(d, squares, (size_t)rows * SQUARES, e))
        return -1;
    p.squares = squares;
    d->ops->gate_norm(d->dev, x, n, rows, n, &p);
    return 0;
}

int layer_sub_norm(struct decoder *d, float *x, uint32_t rows, uint32_t n, uint32_t all,
                   const float *w, float *squares, struct err *e)
{
    const struct gate_norm p = {
        .kind = GATE_NONE, .w = w, .group = all, .eps = spec_norm_eps(&d->spec, all), .all = all};
    return layer_norm_parts(d, x, rows, n, p, squares, e);
}

enum { STATE_ALIGN = 16 }; /* floats */

uint64_t layer_take_state(struct decoder *d, uint64_t floats)
{
    const uint64_t at = d->state_floats;
    d->state_floats += (floats + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    return at;
}

bool layer_stateless(const struct decoder *d)
{
    (void)d;
    return true;
}

struct state_ref layer_state(const struct decoder *d, uint64_t at)
{
    return (struct state_ref){d->state + at, d->state_floats};
}

void layer_free_weight(struct decoder *d, struct weight *w)
{
    if (w)
        d->ops->weight_free(d->dev, w);
}

void layer_free_norm(struct decoder *d, struct norm *n)
{
    d->ops->free(d->dev, (void *)(uintptr_t)n->w);
    d->ops->free(d->dev, (void *)(uintptr_t)n->b);
}

void layer_free_clip(struct decoder *d, struct clip *c)
{
    d->ops->free(d->dev, c->in_low);
    d->ops->free(d->dev, c->in_high);
    d->ops->free(d->dev, c->out_low);
    d->ops->free(d->dev, c->out_high);
}

int layer_sum(struct decoder *d, float *x, size_t n, struct err *e)
{
    /* the others need at most as much as the first */
    if (d->rehearsed && d->rehearsed++ > 1)
        return 0;
    return comm_all_reduce(d->comm, x, n, e);
}
