/* What a decoder is made of: this rank's part of every weight, and how it all goes away again. */
#include "common/clock.h"
#include "common/log.h"
#include "model-server/model/loader.h"
#include <stdlib.h>

static const int64_t TELL_NS = 5000000000;

static struct norm norm(struct loader *l, enum role role, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct norm n = {.kind = s->norm.kind, .eps = s->norm.eps};
    n.w = loader_weight_vector(l, role, layer, s->hidden);
    n.b = s->bias.norm ? loader_bias(l, role, layer, s->hidden) : NULL;
    return n;
}

/* ---------------------------------------------------------------- layers */

/* This rank's heads of q, k and v as row ranges of whatever matrices hold them. */
static int qkv_parts(struct loader *l, int layer, bool bias, struct mat_part *parts)
{
    static const enum role roles[] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const struct split *sp = &l->d->split;
    const uint32_t all = (s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    const bool packed = s->qkv != QKV_SEPARATE;
    struct mat_part whole = {0};
    int n = 0;
    if (packed)
        whole = loader_part(l, W_QKV, layer, NO_EXPERT, bias, all, s->hidden);
    for (int p = 0; p < 3; p++) {
        const struct slice heads = p == 0 ? sp->heads : sp->kv_heads;
        const uint32_t of = p == 0 ? s->n_heads : s->n_kv_heads;
        uint32_t end = UINT32_MAX;
        if (!packed)
            whole = loader_part(l, roles[p], layer, NO_EXPERT, bias, (int64_t)of * s->head_dim,
                                s->hidden);
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++) {
            uint32_t row = spec_qkv_row(s, p, h);
            if (row == end)
                parts[n - 1].rows += s->head_dim;
            else
                parts[n++] = loader_rows(whole, row, s->head_dim);
            end = row + s->head_dim;
        }
    }
    return n;
}

static void load_qkv(struct loader *l, struct layer *y, int layer)
{
    const struct split *sp = &l->d->split;
    struct mat_part *parts = calloc(sp->heads.n + 2 * sp->kv_heads.n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    y->qkv = loader_pack(l, parts, qkv_parts(l, layer, false, parts), l->d->dtype, l->d->quant);
    if (l->d->spec.bias.qkv)
        y->qkv_bias = loader_vector(l, parts, qkv_parts(l, layer, true, parts), 0);
    free(parts);
}

/* Gate over up, or up alone: this rank's rows of `ffn`. */
static int up_parts(struct loader *l, int layer, bool bias, struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.ffn;
    if (s->mlp == MLP_GATED_PACKED) {
        parts[1] =
            loader_part(l, W_GATE_UP, layer, NO_EXPERT, bias, 2 * (int64_t)s->ffn, s->hidden);
        parts[0] = loader_rows(parts[1], f.first, f.n);
        parts[1] = loader_rows(parts[1], s->ffn + f.first, f.n);
        return 2;
    }
    int n = 0;
    if (s->mlp == MLP_GATED)
        parts[n++] = loader_rows(loader_part(l, W_GATE, layer, NO_EXPERT, bias, s->ffn, s->hidden),
                                 f.first, f.n);
    parts[n++] =
        loader_rows(loader_part(l, W_UP, layer, NO_EXPERT, bias, s->ffn, s->hidden), f.first, f.n);
    return n;
}

static void load_mlp(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.ffn;
    struct mat_part parts[2];
    y->up = loader_pack(l, parts, up_parts(l, layer, false, parts), l->d->dtype, l->d->quant);
    parts[0] = loader_part(l, W_DOWN, layer, NO_EXPERT, false, s->hidden, s->ffn);
    parts[0] = loader_cut(parts[0], 0, s->hidden, f.first, f.n);
    y->down = loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
    if (!s->bias.mlp)
        return;
    y->up_bias = loader_vector(l, parts, up_parts(l, layer, true, parts), 0);
    if (l->d->split.rank == 0) /* added once, before the sum over ranks */
        y->down_bias = loader_bias(l, W_DOWN, layer, s->hidden);
}

/* Gate over up of one expert: this rank's rows. */
static void expert_up_parts(struct loader *l, int layer, int expert, struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    if (s->moe.layout == EXPERTS_INTERLEAVED) {
        parts[0] =
            loader_expert(l, W_MOE_GATE_UP, layer, expert, 2 * (int64_t)s->moe.ffn, s->hidden);
        loader_turns(l, parts[0], f.first, f.n, parts);
        return;
    }
    parts[0] = loader_part(l, W_MOE_GATE, layer, expert, false, s->moe.ffn, s->hidden);
    parts[1] = loader_part(l, W_MOE_UP, layer, expert, false, s->moe.ffn, s->hidden);
    parts[0] = loader_rows(parts[0], f.first, f.n);
    parts[1] = loader_rows(parts[1], f.first, f.n);
}

/* The router's, and all experts' one behind the other. */
static void load_moe_biases(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    const uint32_t n = s->moe.n_experts, pair = 2 * s->moe.ffn;
    struct mat_part *parts = calloc(2 * (size_t)n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    y->router_bias = loader_bias(l, W_ROUTER, layer, n);
    struct mat_part all = loader_expert_biases(l, W_MOE_GATE_UP, layer, pair);
    for (uint32_t i = 0; i < n; i++)
        loader_turns(l, loader_rows(all, i * pair, pair), f.first, f.n, parts + 2 * (size_t)i);
    y->experts_up_bias = loader_vector(l, parts, 2 * (int)n, 0);
    if (l->d->split.rank == 0) { /* added once, before the sum over ranks */
        all = loader_expert_biases(l, W_MOE_DOWN, layer, s->hidden);
        y->experts_down_bias = loader_vector(l, &all, 1, 0);
    }
    free(parts);
}

/* What is stored in four bits stays so, where the backend can. */
static enum quant expert_quant(const struct loader *l)
{
    const bool kept = l->c && l->how->format == &stored_mxfp4 && l->d->ops->keeps_mxfp4;
    return kept ? QUANT_KEPT_MXFP4 : l->d->quant;
}

static void load_experts(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    const uint32_t n = s->moe.n_experts;
    const bool apart = s->moe.layout == EXPERTS_SEPARATE;
    const enum quant quant = expert_quant(l);
    struct mat_part parts[2];
    y->experts_up = calloc(n, sizeof(struct weight *));
    y->experts_down = calloc(n, sizeof(struct weight *));
    if (!y->experts_up || !y->experts_down) {
        loader_nomem(l);
        return;
    }
    parts[0] = loader_part(l, W_ROUTER, layer, NO_EXPERT, false, n, s->hidden);
    y->router = loader_pack(l, parts, 1, DT_F32, QUANT_NONE); /* small, and its ties decide */
    struct amount before = l->d->weights;
    for (uint32_t i = 0; i < n && !l->failed; i++) {
        expert_up_parts(l, layer, (int)i, parts);
        y->experts_up[i] = loader_pack(l, parts, 2, l->d->dtype, quant);
        parts[0] = apart ? loader_part(l, W_MOE_DOWN, layer, (int)i, false, s->hidden, s->moe.ffn)
                         : loader_expert(l, W_MOE_DOWN, layer, (int)i, s->hidden, s->moe.ffn);
        parts[0] = loader_cut(parts[0], 0, s->hidden, f.first, f.n);
        y->experts_down[i] = loader_pack(l, parts, 1, l->d->dtype, quant);
    }
    if (s->moe.bias)
        load_moe_biases(l, y, layer);
    l->d->experts.bytes += l->d->weights.bytes - before.bytes;
    l->d->experts.elements += l->d->weights.elements - before.elements;
}

/* Now and then, so that nobody wonders: small models load without a word. */
static void tell(struct loader *l, int layers)
{
    int64_t now = clock_ns();
    if (now - l->told < TELL_NS)
        return;
    l->told = now;
    LOG(LOG_INFO, "loading weights", LOGI("layers", layers), LOGI("of", l->d->spec.n_layers),
        LOGI("bytes", l->d->weights.bytes));
}

static void load_layer(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    y->attn_norm = norm(l, W_ATTN_NORM, layer);
    load_qkv(l, y, layer);
    if (s->qk_norm) {
        y->q_norm = loader_weight_vector(l, W_Q_NORM, layer, s->head_dim);
        y->k_norm = loader_weight_vector(l, W_K_NORM, layer, s->head_dim);
    }
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * s->head_dim);
    o = loader_cut(o, 0, s->hidden, (int64_t)h.first * s->head_dim, (int64_t)h.n * s->head_dim);
    y->o = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (s->bias.o && l->d->split.rank == 0)
        y->o_bias = loader_bias(l, W_O, layer, s->hidden);
    if (s->sinks)
        y->sinks = loader_plain_vector(l, W_SINKS, layer, s->n_heads, h);
    if (!s->parallel || !s->shared_norm)
        y->mlp_norm = norm(l, W_MLP_NORM, layer);
    if (s->post_norms) {
        y->post_attn_norm = norm(l, W_POST_ATTN_NORM, layer);
        y->post_mlp_norm = norm(l, W_POST_MLP_NORM, layer);
    }
    if (s->layers[layer].moe)
        load_experts(l, y, layer);
    else
        load_mlp(l, y, layer);
    tell(l, layer + 1);
}

/* Tied or not, the head is read whole for every token and is a fifth of a small model: it is
 * quantised too, apart from the table that is only looked up. Always in 8 bits: 4 would cost a
 * tenth of what the layers' 4 cost (docs/results/quality.md); with activations in 8 bits where the
 * layers have them, since in exact ones a batch of 16 would spend half of its step here. */
static enum quant head_quant(enum quant q) { return q == QUANT_INT4 ? QUANT_W8A8 : q; }

static void load_outer(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const struct slice v = d->split.vocab;
    struct mat_part p = loader_rows(
        loader_part(l, W_EMBED, NO_LAYER, NO_EXPERT, false, s->vocab, s->hidden), v.first, v.n);
    d->embed = loader_pack(l, &p, 1, d->dtype, QUANT_NONE);
    const struct amount embed = d->tables = d->weights;
    if (s->learned_positions) {
        int64_t rows = (int64_t)s->max_positions + s->position_offset;
        p = loader_part(l, W_POSITIONS, NO_LAYER, NO_EXPERT, false, rows, s->hidden);
        d->positions = loader_pack(l, &p, 1, d->dtype, QUANT_NONE);
        d->tables = d->weights;
    }
    d->final_norm = norm(l, W_FINAL_NORM, NO_LAYER);
    d->head = d->embed;
    bool own = s->tied && loader_own_head(l); /* trained apart; transformers 5 does so too */
    if (own)
        log_msg(LOG_WARN,
                "config.json ties the head to the embedding; another is stored, and used");
    const enum quant quant = head_quant(d->quant);
    if (!s->tied || own || quant) {
        enum role role = !s->tied || own ? W_HEAD : W_EMBED;
        p = loader_part(l, role, NO_LAYER, NO_EXPERT, false, s->vocab, s->hidden);
        p = loader_rows(p, v.first, v.n);
        d->head = loader_pack(l, &p, 1, d->dtype, quant);
    }
    if (d->head == d->embed) { /* multiplied with after all */
        d->tables.bytes -= embed.bytes;
        d->tables.elements -= embed.elements;
    }
    if (s->bias.head) {
        p = loader_rows(loader_part(l, W_HEAD, NO_LAYER, NO_EXPERT, true, s->vocab, 1), v.first,
                        v.n);
        d->head_bias = loader_vector(l, &p, 1, 0);
    }
}

int decoder_load(struct decoder *d, const struct arch *a, const struct checkpoint *c,
                 const struct stored *how, struct err *e)
{
    struct loader l = {.d = d, .a = a, .c = c, .how = how, .e = e, .told = clock_ns()};
    d->layers = calloc(d->spec.n_layers, sizeof(d->layers[0]));
    if (!d->layers)
        return err_nomem(e);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_init(&d->rope[i], &d->spec.rope[i], d->spec.max_positions);
    load_outer(&l);
    for (uint32_t i = 0; i < d->spec.n_layers && !l.failed; i++)
        load_layer(&l, &d->layers[i], (int)i);
    loader_drop(&l);
    return l.failed ? -1 : 0;
}

/* ---------------------------------------------------------------- and off it */

static void free_norm(struct decoder *d, struct norm *n)
{
    d->ops->free(d->dev, (void *)(uintptr_t)n->w);
    d->ops->free(d->dev, (void *)(uintptr_t)n->b);
}

static void free_weight(struct decoder *d, struct weight *w)
{
    if (w)
        d->ops->weight_free(d->dev, w);
}

static void free_layer(struct decoder *d, struct layer *y)
{
    float *vectors[] = {y->qkv_bias,        y->o_bias,           y->up_bias, y->down_bias,
                        y->q_norm,          y->k_norm,           y->sinks,   y->router_bias,
                        y->experts_up_bias, y->experts_down_bias};
    struct weight *weights[] = {y->qkv, y->o, y->up, y->down, y->router};
    struct norm *norms[] = {&y->attn_norm, &y->post_attn_norm, &y->mlp_norm, &y->post_mlp_norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        free_weight(d, weights[i]);
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        free_norm(d, norms[i]);
    for (uint32_t i = 0; i < d->spec.moe.n_experts; i++) {
        if (y->experts_up)
            free_weight(d, y->experts_up[i]);
        if (y->experts_down)
            free_weight(d, y->experts_down[i]);
    }
    free(y->experts_up);
    free(y->experts_down);
}

void decoder_free(struct decoder *d)
{
    for (uint32_t i = 0; d->layers && i < d->spec.n_layers; i++)
        free_layer(d, &d->layers[i]);
    free(d->layers);
    if (d->head != d->embed)
        free_weight(d, d->head);
    free_weight(d, d->embed);
    free_weight(d, d->positions);
    free_norm(d, &d->final_norm);
    d->ops->free(d->dev, d->head_bias);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_free(&d->rope[i]);
    if (d->kv)
        d->ops->kv_free(d->dev, d->kv);
    d->ops->free(d->dev, d->scratch.memory);
    free(d->scratch.host), free(d->scratch.spans), free(d->scratch.out_rows);
}
