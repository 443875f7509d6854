/* blended.c - the stream as rows of blocks of layers: a sublayer reads a blend of the rows
 * of the blocks before it and of the open one (struct blend), and its result is added to the open
 * one. The first mixer of a block of `per` layers opens it; before, the last row is the embedding
 * (Inkling 2; attention residuals of Kimi K3).
 *
 * In layers with apart_inputs q, k and v read a blend and a norm of their own. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <math.h>
#include <stdlib.h>

enum { INPUTS = 3 }; /* of a mixer */
/* Inkling 2's, transformers' class has it, whatever config.json says */
static const float BLEND_EPS = 1e-6f;

struct blended_part {
    float *query[INPUTS]; /* [hidden]; NULL: the open row alone is read */
    struct norm k, v;     /* with apart_inputs */
};

uint32_t residual_blended_slots(const struct decoder_spec *s)
{
    return s->blend_per ? (s->n_layers - 1) / s->blend_per + 2 : 0;
}

/* The open row before the mixer of layer i, and after it. */
static uint32_t open_before(const struct decoder_spec *s, uint32_t i)
{
    return (i + s->blend_per - 1) / s->blend_per;
}
static uint32_t open_after(const struct decoder_spec *s, uint32_t i)
{
    return i / s->blend_per + 1;
}

/* ---------------------------------------------------------------- loading */

/* Query `at` of `n` in the tensor of a role. */
static float *query(struct loader *l, enum role role, int layer, uint32_t n, uint32_t at)
{
    const uint32_t hidden = l->d->spec.hidden;
    return loader_plain_vector(l, role, layer, n * hidden, (struct slice){at * hidden, hidden});
}

/* The product of the vectors of two roles, times the root of their width, by which struct blend
 * divides. The second one may lack. */
static float *product(struct loader *l, enum role role, enum role by, int layer)
{
    const uint32_t n = l->d->spec.hidden;
    const float root = sqrtf((float)n);
    float *v = NULL, *b = NULL;
    float *a = loader_floats(l, role, layer, NO_EXPERT, "", n, 1);
    if (loader_has_named(l, by, layer))
        b = loader_floats(l, by, layer, NO_EXPERT, "", n, 1);
    for (uint32_t i = 0; a && i < n; i++)
        a[i] *= b ? b[i] * root : root;
    if (a && !l->failed)
        v = loader_host_vector(l, a, n);
    free(a), free(b);
    return v;
}

/* The first mixer's input is one row, whatever the checkpoint has for it. */
static void load_product(struct loader *l, struct blended_part *y, int layer, enum sub sub)
{
    if (sub == SUBS)
        y->query[0] = product(l, W_BLEND_LAST, W_BLEND_LAST_NORM, layer);
    else if (sub != SUB_MIXER)
        y->query[0] = product(l, W_BLEND_FFN, W_BLEND_FFN_NORM, layer);
    else if (layer > 0)
        y->query[0] = product(l, W_BLEND, W_BLEND_NORM, layer);
    else
        loader_has_named(l, W_BLEND, layer), loader_has_named(l, W_BLEND_NORM, layer);
}

static void load_mixer(struct loader *l, struct blended_part *y, int layer)
{
    const bool apart = l->d->spec.layers[layer].apart_inputs;
    const uint32_t n = apart ? INPUTS : 1;
    const bool earlier =
        loader_has_named(l, W_BLEND_NEXT, layer - 1); /* numbered from the second */
    for (uint32_t i = 0; layer > 0 && i < n; i++)
        y->query[i] =
            earlier ? query(l, W_BLEND_NEXT, layer - 1, n, i) : query(l, W_BLEND, layer, n, i);
    if (!apart)
        return;
    y->k = loader_norm(l, W_K_IN_NORM, layer);
    y->v = loader_norm(l, W_V_IN_NORM, layer);
}

static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    struct blended_part *y = part;
    if (l->d->spec.blend_product)
        load_product(l, y, layer, sub);
    else if (sub == SUB_MIXER)
        load_mixer(l, y, layer);
    else
        y->query[0] = query(l, sub == SUBS ? W_BLEND_LAST : W_BLEND_FFN, layer, 1, 0);
}

static void release(struct decoder *d, void *part)
{
    struct blended_part *y = part;
    for (int i = 0; i < INPUTS; i++)
        d->ops->free(d->dev, y->query[i]);
    layer_free_norm(d, &y->k);
    layer_free_norm(d, &y->v);
}

/* ---------------------------------------------------------------- in a step */

static struct blend blend_of(const struct decoder *d, const struct decoder_part *p,
                             enum blend_kind kind, uint32_t at)
{
    const uint32_t slots = residual_blended_slots(&d->spec);
    return (struct blend){.kind = kind,
                          .slots = slots,
                          .at = at,
                          .rows = d->scratch.streams + (size_t)p->first * slots * d->spec.hidden,
                          .eps = d->spec.blend_product ? d->spec.norm.eps : BLEND_EPS,
                          .raw = d->spec.blend_product};
}

static void run(struct decoder *d, float *x, const struct decoder_part *p, const struct blend *b)
{
    d->ops->blend(d->dev, decoder_rows(d, x, p), p->n, d->spec.hidden, b);
}

static int begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    const struct blend b = blend_of(d, p, BLEND_SET, 0);
    if (decoder_embed(d, p, e))
        return -1;
    run(d, d->scratch.x, p, &b);
    return 0;
}

/* to = the norm of the blend by a query of rows up to `open`. */
static void blend(struct decoder *d, const struct decoder_part *p, const float *by, uint32_t open,
                  float *to, const struct norm *norm)
{
    struct blend b = blend_of(d, p, BLEND_READ, open + 1);
    b.query = by;
    if (by) /* else x is the embedding still */
        run(d, d->scratch.x, p, &b);
    d->ops->norm(d->dev, decoder_rows(d, to, p), decoder_rows(d, d->scratch.x, p), p->n,
                 d->spec.hidden, norm);
}

static void read(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct decoder_spec *m = &d->spec;
    const struct layer *y = &d->layers[i];
    const struct blended_part *part = (const struct blended_part *)y->residual + sub;
    const uint32_t open = sub == SUB_MIXER ? open_before(m, i) : open_after(m, i);
    struct scratch *s = &d->scratch;
    blend(d, p, part->query[0], open, s->n, sub == SUB_MIXER ? &y->mixer_norm : &y->ffn_norm);
    if (sub != SUB_MIXER || !m->layers[i].apart_inputs)
        return;
    blend(d, p, part->query[1], open, s->k_in, &part->k);
    blend(d, p, part->query[2], open, s->v_in, &part->v);
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const uint32_t open = open_after(&d->spec, i);
    const bool opens = sub == SUB_MIXER && i % d->spec.blend_per == 0;
    const struct blend b = blend_of(d, p, opens ? BLEND_SET : BLEND_ADD, open);
    run(d, d->scratch.r, p, &b);
}

static void end(struct decoder *d, uint32_t t)
{
    const struct blended_part *y = d->residual_last;
    const struct decoder_part all = {0, t, t};
    struct blend b = blend_of(d, &all, BLEND_READ, residual_blended_slots(&d->spec));
    b.query = y->query[0];
    run(d, d->scratch.x, &all, &b);
}

const struct residual_ops residual_blended = {.name = "blended",
                                              .part = sizeof(struct blended_part),
                                              .last = true,
                                              .load = load,
                                              .free = release,
                                              .begin = begin,
                                              .read = read,
                                              .write = write,
                                              .end = end};
