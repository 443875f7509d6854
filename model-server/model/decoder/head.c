/* head.c - after the last layer: the final norm and the logits of the rows of output. */
#include "model-server/model/decoder_impl.h"

/* Logits of this rank's slice of the vocabulary, after those of `before` rows. */
static void slice_logits(struct decoder *d, const float *x, const struct weight *head,
                         const float *bias, uint32_t before, uint32_t n_out)
{
    const struct decoder_spec *m = &d->spec;
    float *logits = d->scratch.logits + (size_t)before * d->split.vocab.n;
    d->ops->linear(d->dev, logits, x, n_out, head, bias);
    if (d->head_factors)
        layer_times(d, logits, n_out, d->split.vocab.n, d->head_factors);
    if (m->logit_scale != 1 || m->logit_softcap > 0)
        d->ops->logit_scale(d->dev, logits, n_out, d->split.vocab.n, m->logit_scale,
                            m->logit_softcap);
}

/* And of all of it. */
static int gather_logits(struct decoder *d, uint32_t n_out, struct err *e)
{
    struct scratch *s = &d->scratch;
    if (d->split.world == 1)
        return 0;
    return d->comm->ops->all_gather(d->comm, s->logits, s->gathered,
                                    (size_t)n_out * d->split.vocab_most, e);
}

int decoder_logits(struct decoder *d, const struct weight *head, const float *bias, uint32_t n_out,
                   struct err *e)
{
    slice_logits(d, d->scratch.out, head, bias, 0, n_out);
    return gather_logits(d, n_out, e);
}

/* The same of n normalised rows, which are not in scratch.r. */
static void project(struct decoder *d, const float *rows, uint32_t before, uint32_t n)
{
    struct scratch *s = &d->scratch;
    if (d->head_project)
        d->ops->linear(d->dev, s->r, rows, n, d->head_project, d->head_project_bias);
    if (d->spec.head_dense) {
        d->ops->act(d->dev, s->r, n, d->spec.hidden, d->spec.head_act);
        d->ops->norm(d->dev, s->r, s->r, n, d->spec.hidden, &d->head_norm);
    }
    slice_logits(d, d->head_project ? s->r : rows, d->head, d->head_bias, before, n);
}

int decoder_logits_of(struct decoder *d, const float *rows, uint32_t n, struct err *e)
{
    project(d, rows, 0, n);
    return gather_logits(d, n, e);
}

void decoder_head_rows(struct decoder *d, uint32_t before, uint32_t n, bool few)
{
    struct scratch *s = &d->scratch;
    if (!few)
        d->ops->gather_out(d->dev, s->out, s->x, d->spec.hidden);
    if (!d->spec.no_final_norm)
        d->ops->norm(d->dev, s->out, s->out, n, d->spec.hidden, &d->final_norm);
    project(d, s->out, before, n);
}

int decoder_collect_logits(struct decoder *d, uint32_t n_out, struct err *e)
{
    if (d->stages && stage_share(d, d->scratch.logits, (size_t)n_out * d->split.vocab.n, e))
        return -1;
    return gather_logits(d, n_out, e);
}

int decoder_head(struct decoder *d, uint32_t n_out, struct err *e)
{
    if (d->stage.ends)
        decoder_head_rows(d, 0, n_out, false);
    return decoder_collect_logits(d, n_out, e);
}
