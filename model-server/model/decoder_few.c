/* decoder_few.c - a last layer whose feed-forward runs on the rows of output alone: the logits of a
 * prompt's last token, and pooling of one row, need no other one behind the last mixer. Rows of a
 * feed-forward do not depend on each other, so the bits are the same. Attention, too, runs on those
 * rows, once the keys and values of all are stored. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/pass.h"
#include "model-server/model/residual.h"

/* Row i of this feed-forward is computed from row i of its input and of the stream. */
static bool by_rows(const struct decoder_spec *m, const struct layer_spec *s,
                    const struct sublayer *y)
{
    return y->ops && y->ops != &ffn_shifted && !s->by_id && !m->moe.early_router &&
           !m->moe.shortcut && !m->moe.router_width;
}

bool decoder_ends_few(const struct decoder *d, const struct ragged *b)
{
    const struct decoder_spec *m = &d->spec;
    const uint32_t i = d->stage.first + d->stage.n - 1;
    const struct layer *y = &d->layers[i];
    const struct residual_ops *x = residual_of(m);
    return 2 * (uint64_t)b->n_out <= b->n_tokens && !d->stages &&
           (x == &residual_plain || x == &residual_sums) && y->mixer.ops &&
           by_rows(m, &m->layers[i], &y->ffn) && !y->tail.ops && !decoder_is_cross(d, i) &&
           !d->front.after && !d->first_conv && !m->result_convs && !m->two_stacks && !m->n_added &&
           !spec_reads_embedding(m);
}

/* True if the rows of output attend as steps of one token each to the keys and values of all, and
 * their q fits the memory of the feed-forward, which does not run yet. Devices that draw tokens
 * have other kernels for such steps. To both sides, a row of such a step has no position. */
static bool mixer_by_rows(const struct decoder *d, uint32_t i, const struct ragged *b)
{
    const struct decoder_spec *m = &d->spec;
    const struct layer_spec *s = &m->layers[i];
    const bool positions = s->window || s->chunk || m->near.buckets || m->near.of || m->alibi.most;
    return d->layers[i].mixer.ops == &mixer_attention && !d->ops->draw && !b->mutual &&
           !s->by_blocks && !s->merged && !m->apart.buckets && !(m->both_ways && positions) &&
           (uint64_t)b->n_out * d->mixer_width <= (uint64_t)b->n_tokens * d->ffn_width;
}

/* Every row of output attends to its whole text. */
static void see_texts(const struct ragged *b, struct span *of_rows)
{
    const struct span *text = b->spans;
    for (uint32_t i = 0; i < b->n_out; i++) {
        while (b->out_rows[i] >= text->first + text->n)
            text++;
        of_rows[i].kv_len = text->kv_len;
    }
}

static void swap_rows(float **a, float **b)
{
    float *was = *a;
    *a = *b;
    *b = was;
}

/* Either direction: out has the place of the stream, and r that of its norm. */
static void change_places(struct scratch *s)
{
    swap_rows(&s->x, &s->out);
    swap_rows(&s->n, &s->r);
}

/* Both sublayers, or the second one, of the rows of output. */
static int rest_of_few(struct decoder *d, uint32_t i, uint32_t rows, bool mixer, struct err *e)
{
    struct scratch *s = &d->scratch;
    const struct decoder_part few = {0, rows, rows};
    void *const work = s->mixer;
    change_places(s);
    s->mixer = s->ffn;
    int rc = mixer ? decoder_layer_sub(d, i, SUB_MIXER, &few, e) : 0;
    s->mixer = work;
    rc = rc || decoder_layer_sub(d, i, SUB_FFN, &few, e);
    change_places(s);
    return rc ? -1 : 0;
}

int decoder_layer_few(struct decoder *d, uint32_t i, const struct ragged *b, struct err *e)
{
    const struct decoder_part all = {0, b->n_tokens, b->n_tokens};
    struct scratch *s = &d->scratch;
    const bool mixer = mixer_by_rows(d, i, b);
    if (decoder_layer_store(d, i, &all, e) ||
        (!mixer && decoder_layer_sub(d, i, SUB_MIXER, &all, e)))
        return -1;
    if (!b->n_out) /* a chunk of a prompt: its keys and values are all that is needed */
        return 0;
    const struct ragged last = pass_rows(b, s->last, s->last_spans);
    if (mixer && d->spec.both_ways)
        see_texts(b, s->last_spans);
    d->ops->gather_out(d->dev, s->out, s->x, d->spec.hidden);
    d->ops->gather_out(d->dev, s->r, s->n, d->spec.hidden); /* of some kinds it is not read */
    if (mixer)                                              /* q of these rows: store() left it */
        d->ops->gather_out(d->dev, s->ffn, s->mixer, attention_shape(d, i).qkv);
    return decoder_next_step(d, &last, e) || rest_of_few(d, i, last.n_tokens, mixer, e) ||
                   decoder_next_step(d, b, e)
               ? -1
               : 0;
}
