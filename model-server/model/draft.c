#include "model-server/model/draft.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/pass.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const struct draft_ops *const kinds[] = {&draft_mtp, &draft_medusa, &draft_eagle,
                                                &draft_eagle3};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* The last attention layer of the model: draft layers have its shape. */
static const struct layer_spec *model_layer(const struct decoder_spec *s)
{
    for (uint32_t i = s->n_layers; i-- > 0;)
        if (s->layers[i].mixer == MIXER_ATTENTION || s->layers[i].mixer == MIXER_MLA)
            return &s->layers[i];
    return NULL;
}

int draft_find(struct decoder *d, const struct arch *a, const struct checkpoint *c, bool wanted,
               struct err *e)
{
    struct decoder_spec *s = &d->spec;
    if (s->mix.n || s->blend_per) /* a head would read one stream of many */
        return wanted ? err_set(e, ERR_VALIDATION,
                                "%s: draft heads of models with several residual streams are not "
                                "supported",
                                c->dir)
                      : 0;
    for (int i = 0; i < N_KINDS; i++) {
        struct draft_plan p = {0};
        const int found = kinds[i]->find(d, a, c, &p, e);
        if (found < 0)
            return -1;
        if (!found)
            continue;
        const struct layer_spec *like = p.own ? &p.layer : model_layer(s);
        if (p.layers && (!like || s->n_layers + p.layers > SPEC_MAX_LAYERS))
            return err_set(e, ERR_VALIDATION, "%s: a model of %u layers cannot have this head",
                           kinds[i]->name, s->n_layers);
        for (uint32_t k = 0; k < p.layers; k++) {
            s->layers[s->n_layers + k] = *like;
            s->layers[s->n_layers + k].top_of = 0;
        }
        s->n_draft_layers = p.layers;
        d->draft = (struct draft){.ops = kinds[i], .plan = p, .from = c};
        return 0;
    }
    if (wanted)
        return err_set(e, ERR_VALIDATION, "%s: no draft heads of a known kind for this model",
                       c->dir);
    return 0;
}

static uint32_t row_width(const struct decoder *d, uint32_t depth)
{
    return depth && d->draft.plan.chains ? d->spec.hidden : d->draft.plan.width;
}

static int upload_rows(struct decoder *d, const struct draft_step *x, uint32_t from, uint32_t n,
                       struct err *e)
{
    struct scratch *s = &d->scratch;
    const size_t width = row_width(d, x->depth);
    for (uint32_t i = 0; i < n; i++)
        memcpy(s->host + i * width, x->rows[from + i], width * sizeof(float));
    return d->ops->upload(d->dev, s->hidden, s->host, n * width * sizeof(float), e);
}

/* The decoder that defines positions and vocabulary of a pass. */
static struct decoder *frame_of(struct decoder *d)
{
    struct decoder *own = d->draft.own;
    if (!own)
        return d;
    own->scratch = d->scratch;
    own->kv = d->kv;
    own->kv_in = &d->kv_in[d->kv_at[d->spec.n_layers]];
    return own;
}

/* Scatters n_out rows of the head's own vocabulary to rows of the model's; the last one first,
 * since rows grow. */
static void spread(const struct decoder *d, uint32_t n_out, float *logits)
{
    const uint32_t few = d->draft.own->spec.vocab, all = d->spec.vocab;
    float *const row = d->scratch.host;
    for (uint32_t i = n_out; i-- > 0;) {
        float *to = logits + (size_t)i * all;
        memcpy(row, logits + (size_t)i * few, few * sizeof(*row));
        for (uint32_t v = 0; v < all; v++)
            to[v] = -INFINITY;
        for (uint32_t v = 0; v < few; v++)
            to[d->draft.ids[v]] = row[v];
    }
}

/* Runs step `b`, a part of x->b from its token `from` on. */
static int pass(struct decoder *d, const struct draft_step *x, const struct ragged *b,
                uint32_t from, float *logits, float *next, struct err *e)
{
    struct err late = ERR_INIT;
    const float *rows = NULL;
    struct weight *head = NULL;
    const struct draft_pass p = {b->n_tokens, b->n_out, x->depth, d->scratch.hidden};
    struct decoder *const frame = frame_of(d), *const named = d->draft.ids ? frame : d;
    if (decoder_upload_positions(frame, b, e) || upload_rows(d, x, from, b->n_tokens, e) ||
        d->ops->step_begin(d->dev, b, e))
        return -1;
    int rc = d->draft.ops->forward(d, d->draft.self, &p, &rows, &head, e);
    if (rc == 0 && b->n_out)
        rc = decoder_logits(named, head, NULL, b->n_out, e);
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    if (!b->n_out)
        return 0;
    if (next && rows &&
        d->ops->download(d->dev, next, rows, (size_t)b->n_out * d->spec.hidden * sizeof(float), e))
        return -1;
    if (decoder_fetch_logits(named, b->n_out, logits, e))
        return -1;
    if (d->draft.ids)
        spread(d, b->n_out, logits);
    return 0;
}

int decoder_draft(struct decoder *d, const struct draft_step *x, struct err *e)
{
    const struct ragged *b = &x->b;
    const uint32_t n = b->n_tokens, least = decoder_pass_tokens(d), most = n < least ? n : least;
    assert(d->draft.ops && b->n_out <= n);
    if (n == 0)
        return 0;
    if (decoder_check(d, b, e) || decoder_reserve(d, n, b->n_out, e))
        return -1;
    if (most == n)
        return pass(d, x, b, 0, x->logits, x->next, e);
    float *logits = x->logits, *next = x->next;
    for (uint32_t from = 0; from < n; from += most) {
        const uint32_t to = n - from < most ? n : from + most;
        const struct ragged part = pass_cut(b, from, to, d->scratch.spans, d->scratch.out_rows);
        if (pass(d, x, &part, from, logits, next, e))
            return -1;
        logits += (size_t)part.n_out * d->spec.vocab;
        next += next ? (size_t)part.n_out * d->spec.hidden : 0;
    }
    return 0;
}
