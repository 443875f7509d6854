/* eagle.c - draft heads of one Llama layer on features of the model.
 *
 * EAGLE (arXiv 2401.15077): a matrix joins the embedding of the next token and the model's last
 * hidden state; a layer without a first norm; the model's head. EAGLE-3 (arXiv 2503.01840): a
 * matrix joins the residual streams that enter three layers, a low, a middle and a high one. The
 * layer attends to the norm of that, beside the norm of the embedding. Its own norm and its own
 * head follow, for the most frequent tokens: `d2t`[i] + i is the token of row i. Further drafts
 * use the layer's result in place of the joined streams.
 *
 * The layer is a Llama layer whatever the model is, with its own sizes (config.json of the
 * folder). So a decoder of one layer has its spec, and uses the model's memory and cache.
 *
 * Names are those of SafeAILab's and SpecForge's files (`midlayer.*`), and of the speculators
 * format (`layers.0.*`, `transformer_layer_config`). The three layers:
 * `eagle_aux_hidden_state_layer_ids` of `eagle_config` (SpecForge, SGLang) names layers whose
 * output is used; at the top level (speculators, vLLM) layers whose input is used. The default is
 * the inputs of layers 2, n / 2 and n - 3. */
#include "common/json/json.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAPS = 3 };

extern const struct arch arch_llama;

#define LAYER(what) "model.midlayer." what "|model.layers.0." what
static const struct arch names = {
    .prefix = "model.",
    .names = {[W_DRAFT_IN] = "model.fc",
              [W_DRAFT_EMBED_NORM] = LAYER("input_layernorm"),
              [W_ATTN_NORM] = LAYER("hidden_norm"),
              [W_Q] = LAYER("self_attn.q_proj"),
              [W_K] = LAYER("self_attn.k_proj"),
              [W_V] = LAYER("self_attn.v_proj"),
              [W_O] = LAYER("self_attn.o_proj"),
              [W_MLP_NORM] = LAYER("post_attention_layernorm"),
              [W_GATE] = LAYER("mlp.gate_proj"),
              [W_UP] = LAYER("mlp.up_proj"),
              [W_DOWN] = LAYER("mlp.down_proj"),
              [W_DRAFT_NORM] = "model.norm",
              [W_DRAFT_HEAD] = "lm_head"},
};

struct joined { /* the input of layer `at`, times this matrix */
    uint32_t at;
    struct weight *by; /* [hidden, hidden] */
};

struct eagle {
    struct decoder own;
    struct joined taps[TAPS]; /* EAGLE-3, ascending; EAGLE: of the embedding, of the hidden state */
    float *join_bias;         /* or NULL */
    bool norm_first;          /* the residual is the norm of the layer's input */
    struct norm embed_norm, norm;
    struct weight *head; /* NULL: the model's */
    uint32_t *ids;
};

/* ---------------------------------------------------------------- what the folder says */

struct settings {
    struct decoder_spec spec;
    uint32_t at[TAPS];
    bool norm_first;
};

static void read_taps(struct config *c, const struct decoder_spec *model, uint32_t at[TAPS])
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const uint32_t n = model->n_layers;
    const cJSON *of = json_get(c->file, "eagle_config");
    const cJSON *inner = of ? json_get(of, key) : NULL;
    const cJSON *ids = inner ? inner : json_get(c->file, key), *v;
    at[0] = n < 2 ? n : 2, at[1] = n / 2, at[2] = n < 3 ? 0 : n - 3;
    if (of && cJSON_IsFalse(json_get(of, "use_aux_hidden_state")))
        config_fail(c, "`use_aux_hidden_state`: false is not supported");
    if (!ids || cJSON_IsNull(ids))
        return;
    int k = 0;
    cJSON_ArrayForEach(v, ids)
    {
        const double id = cJSON_IsNumber(v) ? v->valuedouble + (inner ? 1 : 0) : -1;
        if (k < TAPS && id >= 0 && id <= n && id == (uint32_t)id)
            at[k] = (uint32_t)id;
        else
            config_fail(c, "`%s`: %d numbers of the %u layers are wanted", key, TAPS, n);
        k++;
    }
    if (k != TAPS)
        config_fail(c, "`%s`: %d numbers are wanted", key, TAPS);
}

static void check_sizes(struct config *c, const struct decoder_spec *own,
                        const struct decoder_spec *model)
{
    if (c->failed)
        return;
    if (own->n_layers != 1)
        config_fail(c, "a draft head of %u layers is not supported", own->n_layers);
    if (own->hidden != model->hidden)
        config_fail(c, "its hidden states are %u wide, those of the model %u", own->hidden,
                    model->hidden);
    if (rope_by_length(&own->rope[0], model->max_positions))
        config_fail(c, "a rope scaling by the length of the sequence is not supported");
}

static int read_settings(const struct decoder *d, const struct checkpoint *c, bool third,
                         struct settings *s, struct err *e)
{
    char path[PATH_MAX];
    struct config f;
    *s = (struct settings){0};
    if (snprintf(path, sizeof(path), "%s/config.json", c->dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", c->dir);
    if (config_open(&f, path, NULL, e))
        return -1;
    cJSON *layer = cJSON_GetObjectItemCaseSensitive(f.file, "transformer_layer_config");
    if (cJSON_IsObject(layer))
        f.root = layer;
    arch_llama.configure(&f, &s->spec);
    if (third)
        read_taps(&f, &d->spec, s->at);
    check_sizes(&f, &s->spec, &d->spec);
    s->norm_first = cJSON_IsTrue(json_get(f.file, "norm_before_residual"));
    s->spec.attn_embedded = third;
    s->spec.no_first_norm = !third;
    config_close(&f);
    return f.failed ? -1 : 0;
}

static const struct tensor *tensor_of(const struct checkpoint *c, const char *name)
{
    return checkpoint_find_weight(c, &names, name);
}

/* True if it exists, with a matrix that joins this many rows. */
static bool there(const struct decoder *d, const struct checkpoint *c, uint32_t rows)
{
    const struct tensor *join = tensor_of(c, "model.fc.weight");
    return join && join->n_dims == 2 && join->dims[1] == (uint64_t)rows * d->spec.hidden &&
           (tensor_of(c, "model.midlayer.self_attn.q_proj.weight") ||
            tensor_of(c, "model.layers.0.self_attn.q_proj.weight"));
}

static int find_any(const struct decoder *d, const struct checkpoint *c, bool third,
                    struct draft_plan *p, struct err *e)
{
    if (!there(d, c, third ? TAPS : 2))
        return 0;
    struct settings *s = malloc(sizeof(*s));
    if (!s)
        return err_nomem(e);
    const int rc = read_settings(d, c, third, s, e);
    const struct layer_spec *own = &s->spec.layers[0];
    *p = (struct draft_plan){.layers = 1,
                             .own = true,
                             .rope_dim = s->spec.rope[0].dim,
                             .width = d->spec.hidden,
                             .keeps = true,
                             .chains = true};
    p->layer = *own;
    p->layer.n_kv_heads = spec_kv_heads(&s->spec, 0);
    p->layer.head_dim = spec_head_dim(&s->spec, 0);
    free(s);
    return rc ? -1 : 1;
}

static int find(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                struct draft_plan *p, struct err *e)
{
    (void)a;
    return find_any(d, c, false, p, e);
}

static int find_third(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                      struct draft_plan *p, struct err *e)
{
    (void)a;
    return find_any(d, c, true, p, e);
}

/* ---------------------------------------------------------------- load */

static void fail(struct loader *l, const char *why)
{
    if (!l->failed)
        err_set(l->e, ERR_VALIDATION, "%s: %s", l->c->dir, why);
    l->failed = true;
}

/* Loads the tokens of the head's rows. */
static void load_ids(struct loader *l, struct eagle *m, uint32_t n, uint32_t vocab)
{
    const struct tensor *t = tensor_of(l->c, "d2t");
    const size_t size = t && t->type == T_I32 ? 4 : 8;
    if (t && ((t->type != T_I64 && t->type != T_I32) || t->bytes != n * size)) {
        fail(l, "tensor `d2t` does not have a whole number for each row of the head");
        return;
    }
    if (!t && n != vocab) {
        fail(l, "tensor `d2t` is missing, and the head has fewer rows than the model");
        return;
    }
    if (!(m->ids = malloc(n * sizeof(*m->ids)))) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t more = 0;
        int32_t less;
        if (t && size == 8)
            memcpy(&more, (const char *)t->data + i * size, size);
        else if (t)
            memcpy(&less, (const char *)t->data + i * size, size), more = less;
        if (more < -(int64_t)i || more >= (int64_t)vocab - i) {
            fail(l, "tensor `d2t` names a token outside the vocabulary");
            return;
        }
        m->ids[i] = (uint32_t)(more + i);
    }
}

/* The stored matrix multiplies several rows side by side; each gets its own part. */
static void load_join(struct loader *l, struct eagle *m, const uint32_t *at, int n)
{
    const int64_t h = l->d->spec.hidden;
    for (int k = 0; k < n; k++) {
        struct mat_part p = loader_part(l, W_DRAFT_IN, NO_LAYER, NO_EXPERT, false, h, n * h);
        int to = k;
        p = loader_cut(p, 0, h, k * h, h);
        const struct joined new = {at ? at[k] : 0, loader_pack(l, &p, 1, l->d->dtype, l->d->quant)};
        for (; at && to > 0 && m->taps[to - 1].at > new.at; to--)
            m->taps[to] = m->taps[to - 1];
        m->taps[to] = new;
    }
    if (tensor_of(l->c, "model.fc.bias"))
        m->join_bias = loader_bias(l, W_DRAFT_IN, NO_LAYER, (uint32_t)h);
}

static void load_head(struct loader *l, struct eagle *m)
{
    struct decoder *own = l->d;
    if (!m->ids)
        return;
    struct mat_part p =
        loader_part(l, W_DRAFT_HEAD, NO_LAYER, NO_EXPERT, false, own->spec.vocab, own->spec.hidden);
    p = loader_rows(p, own->split.vocab.first, own->split.vocab.n);
    m->head = loader_pack(l, &p, 1, own->dtype, loader_head_quant(own->quant));
}

/* Creates a decoder of only the head's layer, on the model's device. */
static bool make_own(struct loader *l, struct eagle *m, const struct decoder *d)
{
    struct decoder *own = &m->own;
    own->ops = d->ops, own->dev = d->dev, own->comm = d->comm;
    own->dtype = d->dtype, own->quant = d->quant;
    own->sample = d->sample, own->packed = d->packed;
    own->layers = calloc(1, sizeof(*own->layers));
    own->kv_at = calloc(1, sizeof(*own->kv_at));
    if (!own->layers || !own->kv_at) {
        loader_nomem(l);
        return false;
    }
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_init(&own->rope[i], &own->spec.rope[i], d->spec.max_positions);
    if (split_make(&own->split, &own->spec, d->split.rank, d->split.world, l->e) == 0)
        return true;
    l->failed = true;
    return false;
}

static void load_parts(struct loader *l, struct eagle *m, const uint32_t *at)
{
    const bool third = m->own.spec.attn_embedded;
    load_join(l, m, at, third ? TAPS : 2);
    decoder_load_layer(l, 0);
    if (!third)
        return;
    m->embed_norm = loader_norm(l, W_DRAFT_EMBED_NORM, NO_LAYER);
    m->norm = loader_norm(l, W_DRAFT_NORM, NO_LAYER);
    load_head(l, m);
}

/* Number of rows of the head's own matrix to the vocabulary; without one it uses the model's. */
static void read_vocab(struct loader *l, struct eagle *m, uint32_t vocab)
{
    const struct tensor *head = tensor_of(l->c, "lm_head.weight");
    const uint64_t rows = m->own.spec.attn_embedded && head && head->n_dims ? head->dims[0] : 0;
    m->own.spec.vocab = vocab;
    if (!rows)
        return;
    if (rows > vocab) {
        fail(l, "its head has more rows than the model has tokens");
        return;
    }
    m->own.spec.vocab = (uint32_t)rows;
    load_ids(l, m, (uint32_t)rows, vocab);
}

static void count(struct decoder *d, const struct decoder *own)
{
    d->weights.bytes += own->weights.bytes;
    d->weights.elements += own->weights.elements;
    d->mixer_width = d->mixer_width > own->mixer_width ? d->mixer_width : own->mixer_width;
    d->ffn_width = d->ffn_width > own->ffn_width ? d->ffn_width : own->ffn_width;
    d->tile_width = d->tile_width > own->tile_width ? d->tile_width : own->tile_width;
}

static void *load_any(struct loader *l, bool third)
{
    struct decoder *d = l->d;
    const struct arch *of = l->a;
    struct eagle *m = calloc(1, sizeof(*m));
    struct settings *s = malloc(sizeof(*s));
    if (!m || !s) {
        loader_nomem(l);
    } else if (read_settings(d, l->c, third, s, l->e)) {
        l->failed = true;
    } else {
        m->own.spec = s->spec;
        m->norm_first = s->norm_first;
        l->d = &m->own;
        l->a = &names;
        read_vocab(l, m, d->spec.vocab);
        if (!l->failed && make_own(l, m, d))
            load_parts(l, m, third ? s->at : NULL);
        l->d = d;
        l->a = of;
        count(d, &m->own);
        d->draft.own = &m->own;
        d->draft.ids = m->ids;
    }
    free(s);
    return m;
}

static void *load(struct loader *l) { return load_any(l, false); }
static void *load_third(struct loader *l) { return load_any(l, true); }

static void release(struct decoder *d, void *self)
{
    struct eagle *m = self;
    struct decoder *own = &m->own;
    if (own->layers)
        decoder_free_layer(own, 0);
    for (int k = 0; k < TAPS; k++)
        layer_free_weight(d, m->taps[k].by);
    for (int i = 0; own->ops && i < SPEC_MAX_ROPES; i++)
        rope_free(&own->rope[i]);
    layer_free_weight(d, m->head);
    layer_free_norm(d, &m->embed_norm);
    layer_free_norm(d, &m->norm);
    d->ops->free(d->dev, m->join_bias);
    free(own->layers), free(own->kv_at), free(m->ids), free(m);
}

/* ---------------------------------------------------------------- a pass */

static void tap(struct decoder *d, const void *self, uint32_t layer, uint32_t tokens)
{
    const struct eagle *m = self;
    const uint32_t n = d->spec.hidden;
    struct scratch *s = &d->scratch;
    for (int k = 0; k < TAPS; k++) {
        if (m->taps[k].at != layer)
            continue;
        d->ops->linear(d->dev, k ? s->r : s->hidden, s->x, tokens, m->taps[k].by,
                       k ? NULL : m->join_bias);
        if (k)
            d->ops->add_norm(d->dev, NULL, s->hidden, s->r, 1, tokens, n, NULL);
    }
}

/* The model's embedding, with which heads are trained, even if the file contains one. */
static int embed(struct decoder *d, float *y, uint32_t tokens, struct err *e)
{
    d->ops->embed(d->dev, y, d->embed, d->split.vocab.first, 1);
    return layer_sum(d, y, (size_t)tokens * d->spec.hidden, e);
}

static int forward(struct decoder *d, const void *self, const struct draft_pass *p,
                   const float **next, struct weight **head, struct err *e)
{
    const struct eagle *m = self;
    struct decoder *own = d->draft.own;
    struct scratch *s = &own->scratch;
    const uint32_t n = d->spec.hidden, t = p->tokens;
    if (embed(d, s->n, t, e))
        return -1;
    d->ops->linear(d->dev, s->x, s->n, t, m->taps[0].by, m->join_bias);
    d->ops->linear(d->dev, s->r, p->hidden, t, m->taps[1].by, NULL);
    d->ops->add_norm(d->dev, NULL, s->x, s->r, 1, t, n, NULL);
    if (decoder_layer(own, 0, t, e))
        return -1;
    if (!p->n_out)
        return 0;
    d->ops->gather_out(d->dev, s->out, s->x, n);
    d->ops->gather_out(d->dev, s->r, s->x, n);
    *next = s->r;
    *head = d->head;
    return 0;
}

static int forward_third(struct decoder *d, const void *self, const struct draft_pass *p,
                         const float **next, struct weight **head, struct err *e)
{
    const struct eagle *m = self;
    struct decoder *own = d->draft.own;
    struct scratch *s = &own->scratch;
    const struct norm *before = &own->layers[0].mixer_norm;
    const uint32_t n = d->spec.hidden, t = p->tokens;
    s->x = s->hidden; /* the rows are the residual stream of the layer */
    if (embed(d, s->embedded, t, e))
        return -1;
    d->ops->norm(d->dev, s->embedded, s->embedded, t, n, &m->embed_norm);
    d->ops->norm(d->dev, s->n, s->x, t, n, before);
    if (m->norm_first)
        d->ops->norm(d->dev, s->x, s->x, t, n, before);
    if (decoder_layer(own, 0, t, e))
        return -1;
    if (!p->n_out)
        return 0;
    d->ops->gather_out(d->dev, s->out, s->x, n);
    d->ops->gather_out(d->dev, s->r, s->x, n);
    d->ops->norm(d->dev, s->out, s->out, p->n_out, n, &m->norm);
    *next = s->r;
    *head = m->head ? m->head : d->head;
    return 0;
}

const struct draft_ops draft_eagle = {"eagle", find, load, release, forward, NULL};
const struct draft_ops draft_eagle3 = {"eagle3", find_third,    load_third,
                                       release,  forward_third, tap};
