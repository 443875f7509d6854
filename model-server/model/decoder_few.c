/* decoder_few.c - a last layer whose feed-forward runs on the rows of output alone: pooling of one
 * row needs no other one behind the last mixer. Rows of a feed-forward do not depend on each other,
 * so the bits are the same. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/residual.h"

bool decoder_ends_few(const struct decoder *d, const struct ragged *b)
{
    const struct decoder_spec *m = &d->spec;
    const uint32_t i = d->stage.first + d->stage.n - 1;
    const struct layer *y = &d->layers[i];
    const struct residual_ops *x = residual_of(m);
    return b->n_out && 2 * (uint64_t)b->n_out <= b->n_tokens && !d->stages &&
           (x == &residual_plain || x == &residual_sums) && y->mixer.ops && y->ffn.ops &&
           !y->tail.ops && !decoder_is_cross(d, i) && !m->layers[i].by_id && !d->front.after &&
           !d->first_conv && !m->result_convs && !m->two_stacks && !m->moe.early_router &&
           !m->moe.shortcut && !m->n_added && !spec_reads_embedding(m);
}

static void swap_rows(float **a, float **b)
{
    float *was = *a;
    *a = *b;
    *b = was;
}

int decoder_layer_few(struct decoder *d, uint32_t i, const struct ragged *b,
                      const struct ragged *last, struct err *e)
{
    const struct decoder_part all = {0, b->n_tokens, b->n_tokens};
    const struct decoder_part few = {0, last->n_tokens, last->n_tokens};
    struct scratch *s = &d->scratch;
    if (decoder_layer_store(d, i, &all, e) || decoder_layer_sub(d, i, SUB_MIXER, &all, e))
        return -1;
    d->ops->gather_out(d->dev, s->out, s->x, d->spec.hidden);
    d->ops->gather_out(d->dev, s->r, s->n, d->spec.hidden); /* of some kinds it is not read */
    swap_rows(&s->x, &s->out);
    swap_rows(&s->n, &s->r);
    return decoder_next_step(d, last, e) || decoder_layer_sub(d, i, SUB_FFN, &few, e) ? -1 : 0;
}
