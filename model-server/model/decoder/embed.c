/* embed.c - the residual stream before the first layer: embeddings of tokens, rows that
 * replace them, positions and their rotations. */
#include "model-server/model/decoder_impl.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Uploads the rotations of the step's positions. */
static int upload_ropes(struct decoder *d, const struct ragged *b, struct err *e)
{
    struct scratch *s = &d->scratch;
    for (int i = 0; i < SPEC_MAX_ROPES; i++) {
        const struct rope_spec *r = &d->spec.rope[i];
        if (r->kind == ROPE_NONE)
            continue;
        rope_rows(&d->rope[i], b, s->host);
        size_t bytes = (size_t)b->n_tokens * r->dim * sizeof(float);
        if (d->ops->upload(d->dev, s->rope[i], s->host, bytes, e))
            return -1;
    }
    return 0;
}

static int upload_q_scale(struct decoder *d, const struct ragged *b, struct err *e)
{
    const struct q_growth *g = &d->spec.q_growth;
    struct scratch *s = &d->scratch;
    if (!(g->length > 0))
        return 0;
    for (uint32_t i = 0; g->by_head && i < b->n_tokens; i++)
        s->host[i] = (float)log1p(b->pos[i]);
    for (uint32_t i = 0; !g->by_head && i < b->n_tokens; i++) {
        const double runs = ((double)b->pos[i] + g->after) / g->length;
        const double grown = g->beyond ? log(runs > 1 ? runs : 1) : log1p(floor(runs));
        s->host[i] = (float)(g->power ? pow(1 + runs, g->beta) : 1 + g->beta * grown);
    }
    return d->ops->upload(d->dev, s->q_scale, s->host, b->n_tokens * sizeof(float), e);
}

/* Positions of each type follow those of the one before. */
static int upload_kinds(struct decoder *d, const struct ragged *b, struct err *e)
{
    struct scratch *s = &d->scratch;
    const uint32_t rows = spec_position_rows(&d->spec);
    uint32_t *kinds = (uint32_t *)(void *)s->host;
    if (!d->spec.relative.reach)
        return 0;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        kinds[i] = b->pos[i] / rows;
    return d->ops->upload(d->dev, s->kinds, kinds, b->n_tokens * sizeof(*kinds), e);
}

int decoder_upload_positions(struct decoder *d, const struct ragged *b, struct err *e)
{
    if (upload_ropes(d, b, e) || upload_q_scale(d, b, e))
        return -1;
    return upload_kinds(d, b, e);
}

/* Only steps with images need it. */
static int reserve_given(struct decoder *d, uint32_t n, struct err *e)
{
    struct scratch *s = &d->scratch;
    const size_t bytes = (size_t)n * (1 + d->spec.n_added) * d->spec.hidden * sizeof(float);
    if (n <= s->cap_given)
        return 0;
    d->ops->free(d->dev, s->given);
    free(s->given_host);
    s->cap_given = 0;
    s->given_host = NULL;
    if (!(s->given = d->ops->alloc(d->dev, bytes, e)))
        return -1;
    if (!(s->given_host = malloc(bytes)))
        return err_nomem(e);
    s->cap_given = n;
    return 0;
}

int decoder_upload_given(struct decoder *d, const struct ragged *b, struct err *e)
{
    struct scratch *s = &d->scratch;
    const size_t hidden = d->spec.hidden, each = 1 + d->spec.n_added;
    uint32_t n = 0;
    s->n_given = 0;
    for (uint32_t i = 0; b->given && i < b->n_tokens; i++)
        n += b->given[i] != NULL;
    if (!n)
        return 0;
    if (reserve_given(d, n, e))
        return -1;
    for (uint32_t i = 0, k = 0; i < b->n_tokens; i++) {
        if (!b->given[i])
            continue;
        for (size_t r = 0; r < each; r++)
            memcpy(s->given_host + (r * n + k) * hidden, b->given[i] + r * hidden,
                   hidden * sizeof(float));
        k++;
    }
    s->n_given = n;
    return d->ops->upload(d->dev, s->given, s->given_host, n * each * hidden * sizeof(float), e);
}

int decoder_embed_rows(struct decoder *d, float *x, uint32_t t, struct err *e)
{
    d->ops->embed(d->dev, x, d->embed, d->split.vocab.first, d->spec.embed_scale);
    if (layer_sum(d, x, (size_t)t * spec_embed_dim(&d->spec), e))
        return -1;
    decoder_other_add(d, x, t);
    return 0;
}

/* Embeddings narrower than the stream: up to the norm in scratch->r. */
static int embed_narrow(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    const struct decoder_spec *m = &d->spec;
    struct scratch *s = &d->scratch;
    assert(p->n == p->total && (m->embed_norm || m->narrow_head || m->embed_trigram));
    if (decoder_embed_rows(d, s->r, p->n, e))
        return -1;
    if (m->embed_trigram) /* the rest needs the texts: trigram_run() */
        return 0;
    if (!m->narrow_head) {
        d->ops->embed_pos(d->dev, s->r, d->positions, m->position_offset);
        d->ops->norm(d->dev, s->r, s->r, p->n, m->embed_dim, &d->embed_norm);
    }
    d->ops->linear(d->dev, s->x, s->r, p->n, d->embed_project, d->embed_bias);
    if (m->narrow_head)
        d->ops->embed_pos(d->dev, s->x, d->positions, m->position_offset);
    return 0;
}

/* What adapters inside the checkpoint add to rows of the table. */
static void embed_inside(struct decoder *d, float *x, float *rows)
{
    const struct decoder_spec *m = &d->spec;
    if (!d->embed_inside || !d->adapters)
        return;
    d->ops->embed(d->dev, rows, d->embed_inside, 0, 1);
    d->ops->lora(d->dev, x, m->hidden, rows, spec_inside_width(m),
                 adapters_sets(d->adapters, 0, LORA_EMBED));
}

int decoder_embed(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    const struct decoder_spec *m = &d->spec;
    struct scratch *s = &d->scratch;
    float *x = decoder_rows(d, s->x, p);
    if (m->embed_dim)
        return embed_narrow(d, p, e);
    if (d->front.embed)
        d->front.embed(d->front.arg, x, p->first, p->n);
    else if (decoder_embed_rows(d, x, p->n, e) ||
             (spec_reads_embedding(m) && decoder_embed_rows(d, s->embedded, p->n, e)))
        return -1;
    embed_inside(d, x, decoder_rows(d, s->r, p));
    if (s->n_given)
        d->ops->give_rows(d->dev, x, s->given, m->hidden, false);
    if (s->n_given && spec_reads_embedding(m))
        d->ops->give_rows(d->dev, s->embedded, s->given, m->hidden, false);
    if (m->embed_norm && m->embed_norm_first)
        d->ops->norm(d->dev, x, x, p->n, m->hidden, &d->embed_norm);
    if (m->learned_positions)
        d->ops->embed_pos(d->dev, x, d->positions, m->position_offset);
    if (m->embed_norm && !m->embed_norm_first)
        d->ops->norm(d->dev, x, x, p->n, m->hidden, &d->embed_norm);
    return 0;
}
