/* mtp.c - multi-token prediction: one more layer of the model's own kind on the norms of a hidden
 * state and of the embedding of the next token (DeepSeek-V3, arXiv 2412.19437, section 2.2).
 *
 * There are two forms. DeepSeek-V3 and GLM-4.5 store it as the layer after the last one
 * (`model.layers.<n>.{enorm,hnorm,eh_proj,shared_head}`); Qwen3-Next and Qwen 3.5 store it
 * separately (`mtp.*`). With several such layers only the first is used, which also drafts every
 * further token from its own last row. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct form {
    const char *in, *embed_norm, *hidden_norm, *norm, *head; /* names; head NULL: the model's */
    const char *layer;   /* replaces "model.layers."; NULL: the same */
    bool goes_on_normed; /* rows of the next depth are those after the last norm */
};
static const struct form forms[] = {
    {"model.layers.*.eh_proj", "model.layers.*.enorm", "model.layers.*.hnorm",
     "model.layers.*.shared_head.norm", "model.layers.*.shared_head.head", NULL, false},
    {"mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", NULL,
     "mtp.layers.", true},
};
enum { N_FORMS = sizeof(forms) / sizeof(forms[0]) };

struct mtp {
    const struct form *form;
    struct weight *of_embed, *of_hidden; /* [hidden, hidden]: the two halves of one matrix */
    struct norm embed_norm, hidden_norm, norm;
    struct weight *head; /* NULL: the model's */
};

static const struct tensor *tensor_of(const struct checkpoint *c, const struct arch *a,
                                      const char *name, uint32_t layer)
{
    char full[TENSOR_NAME_CAP];
    const char *star = strchr(name, '*');
    if (star)
        snprintf(full, sizeof(full), "%.*s%u%s.weight", (int)(star - name), name, layer, star + 1);
    else
        snprintf(full, sizeof(full), "%s.weight", name);
    return checkpoint_find_weight(c, a, full);
}

static const struct form *form_of(const struct checkpoint *c, const struct arch *a, uint32_t layer)
{
    for (int i = 0; i < N_FORMS; i++)
        if (tensor_of(c, a, forms[i].embed_norm, layer))
            return &forms[i];
    return NULL;
}

static int find(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                struct draft_plan *p, struct err *e)
{
    const struct decoder_spec *s = &d->spec;
    (void)e;
    if (s->norms != NORM_BEFORE || s->parallel || s->per_layer || !form_of(c, a, s->n_layers))
        return 0;
    *p = (struct draft_plan){.layers = 1, .width = s->hidden, .keeps = true, .chains = true};
    return 1;
}

/* ---------------------------------------------------------------- load */

/* `name` with each "model.layers." replaced; malloc'd. */
static char *renamed(const char *name, const char *by)
{
    static const char old[] = "model.layers.";
    const size_t n = sizeof(old) - 1, m = strlen(by);
    char *out = malloc(strlen(name) * (1 + m) + 1), *p = out; /* more than enough */
    while (out && *name) {
        if (strncmp(name, old, n) != 0) {
            *p++ = *name++;
            continue;
        }
        memcpy(p, by, m);
        p += m;
        name += n;
    }
    if (out)
        *p = '\0';
    return out;
}

/* The family's names, with those of this form, and if the layers are separate, their prefix. */
static bool name_weights(const struct form *f, const struct arch *of, struct arch *a,
                         char *made[W_ROLES])
{
    *a = *of;
    for (int i = 0; f->layer && i < W_ROLES; i++) {
        if (!a->names[i])
            continue;
        if (!(a->names[i] = made[i] = renamed(of->names[i], f->layer)))
            return false;
    }
    a->names[W_DRAFT_IN] = f->in;
    a->names[W_DRAFT_EMBED_NORM] = f->embed_norm;
    a->names[W_DRAFT_HIDDEN_NORM] = f->hidden_norm;
    a->names[W_DRAFT_NORM] = f->norm;
    a->names[W_DRAFT_HEAD] = f->head;
    return true;
}

/* The stored matrix multiplies [embedding | hidden state]; two products avoid a row of both. */
static struct weight *half(struct loader *l, int layer, int64_t from)
{
    const int64_t n = l->d->spec.hidden;
    struct mat_part p = loader_part(l, W_DRAFT_IN, layer, NO_EXPERT, false, n, 2 * n);
    p = loader_cut(p, 0, n, from, n);
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* Most checkpoints store a copy of the model's head. */
static bool own_head(const struct loader *l, const struct form *f, uint32_t layer)
{
    const struct tensor *t = f->head ? tensor_of(l->c, l->a, f->head, layer) : NULL;
    const struct tensor *m = t ? tensor_of(l->c, l->a, l->a->names[W_HEAD], 0) : NULL;
    return t && !(m && m->type == t->type && m->bytes == t->bytes &&
                  memcmp(m->data, t->data, t->bytes) == 0);
}

static void load_parts(struct loader *l, struct mtp *m)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const int layer = (int)s->n_layers;
    m->of_embed = half(l, layer, 0);
    m->of_hidden = half(l, layer, s->hidden);
    m->embed_norm = loader_norm(l, W_DRAFT_EMBED_NORM, layer);
    m->hidden_norm = loader_norm(l, W_DRAFT_HIDDEN_NORM, layer);
    decoder_load_layer(l, s->n_layers);
    m->norm = loader_norm(l, W_DRAFT_NORM, layer);
    if (l->failed || !own_head(l, m->form, s->n_layers))
        return;
    struct mat_part p = loader_part(l, W_DRAFT_HEAD, layer, NO_EXPERT, false, s->vocab, s->hidden);
    p = loader_rows(p, d->split.vocab.first, d->split.vocab.n);
    m->head = loader_pack(l, &p, 1, d->dtype, loader_head_quant(d->quant));
}

static void *load(struct loader *l)
{
    const struct arch *of = l->a;
    char *made[W_ROLES] = {0};
    struct arch a;
    struct mtp *m = calloc(1, sizeof(*m));
    if (m)
        m->form = form_of(l->c, of, l->d->spec.n_layers);
    if (!m || !name_weights(m->form, of, &a, made)) {
        loader_nomem(l);
    } else {
        l->a = &a;
        l->first_layer = m->form->layer ? (int)l->d->spec.n_layers : 0;
        load_parts(l, m);
        l->first_layer = 0;
        l->a = of;
    }
    for (int i = 0; i < W_ROLES; i++)
        free(made[i]);
    return m;
}

static void release(struct decoder *d, void *self)
{
    struct mtp *m = self;
    layer_free_weight(d, m->of_embed);
    layer_free_weight(d, m->of_hidden);
    layer_free_weight(d, m->head);
    layer_free_norm(d, &m->embed_norm);
    layer_free_norm(d, &m->hidden_norm);
    layer_free_norm(d, &m->norm);
    free(m);
}

/* ---------------------------------------------------------------- a pass */

static int forward(struct decoder *d, const void *self, const struct draft_pass *p,
                   const float **next, struct weight **head, struct err *e)
{
    const struct mtp *m = self;
    const uint32_t n = d->spec.hidden, t = p->tokens, layer = d->spec.n_layers;
    struct scratch *s = &d->scratch;
    if (decoder_embed_rows(d, s->x, t, e))
        return -1;
    d->ops->norm(d->dev, s->n, s->x, t, n, &m->embed_norm);
    d->ops->linear(d->dev, s->x, s->n, t, m->of_embed, NULL);
    d->ops->norm(d->dev, s->n, p->hidden, t, n, &m->hidden_norm);
    d->ops->linear(d->dev, s->r, s->n, t, m->of_hidden, NULL);
    d->ops->add_norm(d->dev, s->n, s->x, s->r, 1, t, n, &d->layers[layer].mixer_norm);
    if (decoder_layer(d, layer, t, e))
        return -1;
    if (!p->n_out)
        return 0;
    d->ops->gather_out(d->dev, s->out, s->x, n);
    d->ops->gather_out(d->dev, s->r, s->x, n);
    d->ops->norm(d->dev, s->out, s->out, p->n_out, n, &m->norm);
    if (m->form->goes_on_normed)
        d->ops->norm(d->dev, s->r, s->r, p->n_out, n, &m->norm);
    *next = s->r;
    *head = m->head ? m->head : d->head;
    return 0;
}

const struct draft_ops draft_mtp = {"mtp", find, load, release, forward};
