/* stacks.c - two stacks of layers that run in turns (Hierarchical Reasoning Model, arXiv
 * 2506.21734). The result of a turn is the norm of the stream; the input of the next turn is the
 * sum of the last results of both stacks. scratch.carried has that of the stack that waits. The
 * second stack's first one is the embedding, the first stack's a stored vector. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <stdlib.h>

struct stack_start {
    struct norm zero;  /* of any row: 0 */
    struct norm start; /* of any row: the stored vector */
};

void decoder_stacks_load(struct loader *l)
{
    const uint32_t n = l->d->spec.hidden;
    struct stack_start *y = calloc(1, sizeof(*y));
    float *host = calloc(n, sizeof(*host));
    if (!y || !host) {
        free(y), free(host);
        loader_nomem(l);
        return;
    }
    l->d->stack_start = y;
    y->zero = (struct norm){.kind = NORM_LAYER, .eps = 1, .w = loader_host_vector(l, host, n)};
    y->start = y->zero;
    y->start.b = loader_plain_vector(l, W_STACK_START, NO_LAYER, n, (struct slice){0, n});
    free(host);
}

void decoder_stacks_free(struct decoder *d)
{
    if (!d->stack_start)
        return;
    layer_free_norm(d, &d->stack_start->zero);
    d->ops->free(d->dev, (void *)(uintptr_t)d->stack_start->start.b);
    free(d->stack_start);
}

/* Rows of a step. */
struct rows_of {
    float *x, *other, *r;
    uint32_t n, hidden;
};

static struct rows_of rows_of(const struct decoder *d, const struct decoder_part *p)
{
    const struct scratch *s = &d->scratch;
    return (struct rows_of){decoder_rows(d, s->x, p), decoder_rows(d, s->carried, p),
                            decoder_rows(d, s->r, p), p->n, d->spec.hidden};
}

static void norm(struct decoder *d, const struct rows_of *m, float *y, const struct norm *of)
{
    d->ops->norm(d->dev, y, m->x, m->n, m->hidden, of);
}

static void add(struct decoder *d, const struct rows_of *m, float *y, const float *x)
{
    d->ops->add_norm(d->dev, y, y, x, 1, m->n, m->hidden, NULL);
}

void decoder_stacks_begin(struct decoder *d, const struct decoder_part *p)
{
    const struct rows_of m = rows_of(d, p);
    norm(d, &m, m.other, &d->stack_start->zero);
    add(d, &m, m.other, m.x);
    norm(d, &m, m.r, &d->stack_start->start);
    add(d, &m, m.x, m.r);
}

void decoder_stacks_turn(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const struct rows_of m = rows_of(d, p);
    const bool ends = d->spec.layers[i].stack_ends;
    if (ends)
        norm(d, &m, m.r, &d->final_norm);
    norm(d, &m, m.x, &d->final_norm);
    add(d, &m, m.x, m.other);
    if (ends) {
        norm(d, &m, m.other, &d->stack_start->zero);
        add(d, &m, m.other, m.r);
    }
}
