/* A pass layer by layer; the caller holds the rows in between: see decoder.h. */
#include "model-server/model/decoder_impl.h"

static int walk_begin(struct decoder *d, const struct ragged *b, struct err *e)
{
    return decoder_reserve_pass(d, b->n_tokens, b->n_out, e) || decoder_upload_positions(d, b, e) ||
                   d->ops->step_begin(d->dev, b, e)
               ? -1
               : 0;
}

/* Ends the step; *x: rows [n_tokens][hidden] of its result. */
static int walk_end(struct decoder *d, const struct ragged *b, int rc, float *x, struct err *e)
{
    struct err late = ERR_INIT;
    const size_t bytes = (size_t)b->n_tokens * d->spec.hidden * sizeof(float);
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    return d->ops->download(d->dev, x, d->scratch.x, bytes, e);
}

int decoder_walk_embed(struct decoder *d, const struct ragged *b, float *x, struct err *e)
{
    const struct decoder_part all = {0, b->n_tokens, b->n_tokens};
    if (decoder_check(d, b, e) || walk_begin(d, b, e))
        return -1;
    return walk_end(d, b, decoder_embed(d, &all, e), x, e);
}

int decoder_walk_layer(struct decoder *d, uint32_t i, const struct ragged *b, float *x,
                       struct err *e)
{
    const size_t bytes = (size_t)b->n_tokens * d->spec.hidden * sizeof(float);
    const struct decoder_part all = {0, b->n_tokens, b->n_tokens};
    const uint32_t layers = d->stage.n;
    if (decoder_is_cross(d, i)) /* walks show no pictures */
        return 0;
    if (decoder_reserve_pass(d, b->n_tokens, 0, e) ||
        d->ops->upload(d->dev, d->scratch.x, x, bytes, e) || walk_begin(d, b, e))
        return -1;
    d->stage.n = i + 1; /* the norm of the next layer may not be loaded */
    decoder_enter_layer(d, i, &all);
    const int rc = decoder_layer(d, i, b->n_tokens, e);
    d->stage.n = layers;
    return walk_end(d, b, rc, x, e);
}

int decoder_walk_head(struct decoder *d, const struct ragged *b, const float *x, float *logits,
                      struct err *e)
{
    struct err late = ERR_INIT;
    const size_t bytes = (size_t)b->n_tokens * d->spec.hidden * sizeof(float);
    if (decoder_reserve_pass(d, b->n_tokens, b->n_out, e) ||
        d->ops->upload(d->dev, d->scratch.x, x, bytes, e) || walk_begin(d, b, e))
        return -1;
    const int rc = decoder_head(d, b->n_out, e);
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    return decoder_fetch_logits(d, b->n_out, logits, e);
}
