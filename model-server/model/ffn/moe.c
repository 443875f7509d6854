/* moe.c - the feed-forward of many MLPs, of which a router selects a few for each token (arXiv
 * 1701.06538, 2401.04088). */
#include "model-server/model/ffn/moe.h"
#include "model-server/model/decoder.h"
#include "model-server/model/ffn/router.h"
#include "model-server/model/loader/loader.h"
#include <stdlib.h>
#include <string.h>

struct experts {
    struct weight *router;                    /* [n_experts + n_zero, hidden or router_width] */
    struct router *before;                    /* with moe_spec.router_width; else NULL */
    struct weight **up, **down;               /* [n_experts] of [2 * ffn, hidden], [hidden, ffn] */
    uint32_t n;                               /* experts */
    float *router_bias, *up_bias, *down_bias; /* see struct moe */
    float *select_bias, *expert_scale, *sum_bias;
    uint32_t *by_id;                        /* [vocab, top_k], or NULL */
    struct weight *shared_up, *shared_down; /* of the shared expert, or NULL */
    struct weight *shared_gate;             /* [1, hidden] */
    struct norm latent_norm;                /* of moe_spec.latent_norm or latent_norm_last */
    float *result_factors, *ones;           /* [latent] of moe_spec.result_eps; or NULL */
    struct weight *in, *out; /* [latent, hidden], [hidden, latent] with moe_spec.latent */
};

/* Input and result of the experts; gate, up and their product, the result and its gate, of the
 * shared expert. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const bool shared = d->spec.moe.shared_ffn != 0;
    return (void)layer, router_work(d) + 2 * d->spec.moe.latent +
                            (shared ? 3 * d->split.shared_ffn.n + d->spec.hidden + 1 : 0);
}

/* ---------------------------------------------------------------- load */

/* True if all of a layer's experts are in one tensor of that layout: in GGUF files they are not. */
static bool is_stacked(const struct loader *l, int layer)
{
    return l->d->spec.moe.layout == EXPERTS_STACKED && !loader_has(l, W_MOE_UP, layer, 0);
}

static bool is_listed(const struct loader *l, int layer)
{
    return l->d->spec.moe.layout == EXPERTS_LISTED && !loader_has(l, W_MOE_UP, layer, 0);
}

/* A matrix of one expert. */
static struct mat_part matrix(struct loader *l, enum role role, int layer, int expert,
                              uint32_t rows, uint32_t cols)
{
    const bool plain = l->d->spec.moe.plain; /* with gates: see loader_fused() */
    if (is_listed(l, layer) || (plain && loader_has_named(l, role, layer)))
        return loader_expert(l, role, layer, expert, FUSED_OUT_FIRST, rows, cols);
    return loader_part(l, role, layer, expert, false, rows, cols);
}

/* This rank's rows of one expert. */
static struct mat_part stacked(struct loader *l, enum role role, int layer, int expert)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    const struct mat_part all = loader_plain_matrix(
        l, role, layer, (int64_t)s->moe.n_experts * s->moe.ffn, spec_expert_in(s));
    return loader_rows(all, (uint32_t)expert * s->moe.ffn + f.first, f.n);
}

/* True if the expert's matrices are those of moe_spec.n_always. */
static bool is_always(const struct loader *l, int expert)
{
    return (uint32_t)expert >= l->d->spec.moe.n_experts - l->d->spec.moe.n_always;
}

/* up_parts() of such an expert. */
static int always_parts(struct loader *l, int layer, int expert, enum fused fused,
                        struct mat_part parts[2])
{
    static const enum role roles[] = {W_SHARED_GATE, W_SHARED_UP};
    const struct moe_spec *m = &l->d->spec.moe;
    const struct slice f = l->d->split.moe_ffn;
    const int at = expert - (int)(m->n_experts - m->n_always);
    const uint32_t in = spec_expert_in(&l->d->spec);
    if (fused == FUSED_TURNS) {
        parts[0] = loader_expert(l, W_SHARED_TURNS, layer, at, fused, 2 * (int64_t)m->ffn, in);
        loader_turns(l, parts[0], f.first, f.n, parts);
        return 2;
    }
    for (int i = 0; i < 2; i++)
        parts[i] = loader_rows(loader_expert(l, roles[i], layer, at, FUSED_OUT_FIRST, m->ffn, in),
                               f.first, f.n);
    return 2;
}

/* Gate over up of one expert, or up alone: this rank's rows. Returns how many parts it is. */
static int up_parts(struct loader *l, int layer, int expert, enum fused fused,
                    struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    const uint32_t ffn = s->moe.ffn, in = spec_expert_in(s);
    if (is_always(l, expert))
        return always_parts(l, layer, expert, fused, parts);
    if (is_stacked(l, layer)) {
        int n = 0;
        if (!s->moe.plain)
            parts[n++] = stacked(l, W_MOE_GATE, layer, expert);
        parts[n++] = stacked(l, W_MOE_UP, layer, expert);
        return n;
    }
    if (fused != FUSED_NONE) {
        const bool turns = fused == FUSED_TURNS || s->moe.layout == EXPERTS_INTERLEAVED;
        const enum role role = fused == FUSED_TURNS ? W_MOE_TURNS : W_MOE_GATE_UP;
        parts[1] = loader_expert(l, role, layer, expert, fused, 2 * (int64_t)ffn, in);
        parts[0] = loader_rows(parts[1], f.first, f.n);
        if (turns)
            loader_turns(l, parts[1], f.first, f.n, parts);
        else
            parts[1] = loader_rows(parts[1], ffn + f.first, f.n);
        return 2;
    }
    int n = 0;
    if (!s->moe.plain)
        parts[n++] = matrix(l, W_MOE_GATE, layer, expert, ffn, in);
    parts[n++] = matrix(l, W_MOE_UP, layer, expert, ffn, in);
    for (int i = 0; i < n; i++)
        parts[i] = loader_rows(parts[i], f.first, f.n);
    return n;
}

/* Those of the last matrices are added once, before the sum over ranks: by the first rank, or by
 * the one that has the expert. */
static bool adds_biases(const struct loader *l)
{
    return l->d->split.rank == 0 || l->d->split.experts.n < l->d->spec.moe.n_experts;
}

/* Biases of the router, and of all experts, one after the other. */
static void load_biases(struct loader *l, struct experts *y, int layer)
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
    for (uint32_t i = 0; i < n; i++) {
        const struct mat_part own = loader_rows(all, i * pair, pair);
        struct mat_part *to = parts + 2 * (size_t)i;
        if (s->moe.layout == EXPERTS_INTERLEAVED) {
            loader_turns(l, own, f.first, f.n, to);
        } else {
            to[0] = loader_rows(own, f.first, f.n);
            to[1] = loader_rows(own, s->moe.ffn + f.first, f.n);
        }
    }
    y->up_bias = loader_vector(l, parts, 2 * (int)n, 0);
    if (adds_biases(l)) {
        all = loader_expert_biases(l, W_MOE_DOWN, layer, s->hidden);
        y->down_bias = loader_vector(l, &all, 1, 0);
    }
    free(parts);
}

/* Elements `s` of the bias of each expert's matrix, one after the other. */
static float *each_bias(struct loader *l, enum role role, int layer, uint32_t rows, struct slice s)
{
    const uint32_t n = l->d->spec.moe.n_experts;
    float *all = calloc((size_t)n * s.n, sizeof(*all)), *v = NULL;
    if (!all)
        loader_nomem(l);
    for (uint32_t i = 0; all && !l->failed && i < n; i++) {
        float *own = loader_floats(l, role, layer, (int)i, ".bias", rows, 1);
        if (own)
            memcpy(all + (size_t)i * s.n, own + s.first, s.n * sizeof(*own));
        free(own);
    }
    if (!l->failed)
        v = loader_host_vector(l, all, n * s.n);
    free(all);
    return v;
}

static bool is_here(const struct loader *l, uint32_t expert)
{
    const struct slice *x = &l->d->split.experts;
    return expert - x->first < x->n;
}

/* This rank's columns of one expert's last matrix. */
static struct mat_part down_part(struct loader *l, int layer, int expert, enum fused fused)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    if (is_stacked(l, layer))
        return loader_turned(stacked(l, W_MOE_DOWN, layer, expert));
    const uint32_t out = spec_expert_in(s), apart = s->moe.n_experts - s->moe.n_always;
    const struct mat_part p =
        is_always(l, expert) ? loader_expert(l, W_SHARED_DOWN, layer, expert - (int)apart,
                                             FUSED_OUT_FIRST, out, s->moe.ffn)
        : fused              ? loader_expert(l, W_MOE_DOWN, layer, expert, fused, out, s->moe.ffn)
                             : matrix(l, W_MOE_DOWN, layer, expert, out, s->moe.ffn);
    return loader_cut(p, 0, out, f.first, f.n);
}

/* Finds an expert of another rank without packing it. */
static void pass_over(struct loader *l, int layer, int expert, enum fused fused)
{
    struct mat_part parts[2];
    if (!l->c)
        return;
    up_parts(l, layer, expert, fused, parts);
    loader_drop(l);
    down_part(l, layer, expert, fused);
    loader_drop(l);
}

static void load_experts(struct loader *l, struct experts *y, int layer)
{
    const enum fused fused = loader_fused(l, layer);
    const enum quant quant = l->d->quant;
    struct mat_part parts[2];
    for (uint32_t i = 0; i < y->n && !l->failed; i++) {
        if (!is_here(l, i)) {
            pass_over(l, layer, (int)i, fused);
            continue;
        }
        const int n = up_parts(l, layer, (int)i, fused, parts);
        y->up[i] = loader_pack(l, parts, n, l->d->dtype, quant);
        parts[0] = down_part(l, layer, (int)i, fused);
        y->down[i] = loader_pack(l, parts, 1, l->d->dtype, quant);
    }
}

/* As up_parts(). */
static int shared_parts(struct loader *l, int layer, struct mat_part p[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.shared_ffn;
    const uint32_t ffn = s->moe.shared_ffn;
    int n = 0;
    if (s->moe.shared_packed && !loader_has(l, W_SHARED_GATE, layer, NO_EXPERT)) {
        p[1] =
            loader_part(l, W_SHARED_GATE_UP, layer, NO_EXPERT, false, 2 * (int64_t)ffn, s->hidden);
        p[0] = loader_rows(p[1], f.first, f.n);
        p[1] = loader_rows(p[1], ffn + f.first, f.n);
        return 2;
    }
    if (!s->moe.plain)
        p[n++] = loader_part(l, W_SHARED_GATE, layer, NO_EXPERT, false, ffn, s->hidden);
    p[n++] = loader_part(l, W_SHARED_UP, layer, NO_EXPERT, false, ffn, s->hidden);
    for (int i = 0; i < n; i++)
        p[i] = loader_rows(p[i], f.first, f.n);
    return n;
}

static void load_shared(struct loader *l, struct experts *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.shared_ffn;
    const uint32_t ffn = s->moe.shared_ffn;
    struct mat_part p[2];
    const int n = shared_parts(l, layer, p);
    y->shared_up = loader_pack(l, p, n, l->d->dtype, l->d->quant);
    p[0] = loader_part(l, W_SHARED_DOWN, layer, NO_EXPERT, false, s->hidden, ffn);
    p[0] = loader_cut(p[0], 0, s->hidden, f.first, f.n);
    y->shared_down = loader_pack(l, p, 1, l->d->dtype, l->d->quant);
    if (!s->moe.shared_gate)
        return;
    p[0] = loader_part(l, W_SHARED_GATE_OUT, layer, NO_EXPERT, false, 1, s->hidden);
    y->shared_gate = loader_pack(l, p, 1, DT_F32, QUANT_NONE);
}

/* Every rank has both: the second one multiplies the rank's share of the experts' sum. A norm
 * before it reads the sum of all ranks, and only the first rank's result is not 0. */
static void load_latent(struct loader *l, struct experts *y, int layer)
{
    const uint32_t n = l->d->spec.moe.latent, hidden = l->d->spec.hidden;
    struct mat_part p = loader_part(l, W_MOE_LATENT_IN, layer, NO_EXPERT, false, n, hidden);
    y->in = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    p = loader_part(l, W_MOE_LATENT_OUT, layer, NO_EXPERT, false, hidden, n);
    y->out = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    if (!l->d->spec.moe.latent_norm && !l->d->spec.moe.latent_norm_last)
        return;
    y->latent_norm = (struct norm){.kind = NORM_RMS,
                                   .eps = l->d->spec.norm.eps,
                                   .w = loader_weight_vector(l, W_MOE_LATENT_NORM, layer, n)};
    if (l->d->spec.moe.latent_norm_last && l->d->split.rank > 0) {
        l->d->ops->free(l->d->dev, (void *)(uintptr_t)y->latent_norm.w);
        y->latent_norm.w = loader_constants(l, n, 0);
    }
}

bool moe_sight_behind(const struct loader *l, int layer)
{
    return l->c && l->d->spec.moe.sight_ffn && loader_fused(l, layer) == FUSED_NONE;
}

/* With moe_spec.router_by. */
static struct weight *load_scaled_router(struct loader *l, int layer, uint32_t n)
{
    const struct decoder_spec *s = &l->d->spec;
    float *of = loader_floats(l, W_ROUTER, layer, NO_EXPERT, ".weight", n, s->hidden);
    struct weight *w = NULL;
    for (size_t i = 0; of && i < (size_t)n * s->hidden; i++)
        of[i] *= s->moe.router_by;
    if (of)
        w = loader_host_matrix(l, of, n, s->hidden);
    free(of);
    return w;
}

/* Small, and its ties matter: fp32. */
static struct weight *load_router(struct loader *l, int layer, uint32_t n)
{
    if (l->d->spec.moe.router_by != 0)
        return load_scaled_router(l, layer, n);
    const uint32_t width = l->d->spec.moe.router_width, hidden = width ? width : l->d->spec.hidden;
    const bool turned = moe_sight_behind(l, layer);
    struct mat_part p = turned ? loader_part(l, W_ROUTER, layer, NO_EXPERT, false, hidden, n)
                               : loader_part(l, W_ROUTER, layer, NO_EXPERT, false, n, hidden);
    if (turned) {
        loader_numbers(l, &p);
        p = loader_turned(p);
    }
    return loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
}

/* With those of moe_spec.n_always, which are above all scores. */
static float *load_whole_bias(struct loader *l, int layer, uint32_t n)
{
    static const float ABOVE = 1e30f;
    const uint32_t own = n - l->d->spec.moe.n_always;
    float *host = calloc(n, sizeof(*host)), *v = NULL;
    float *of = loader_floats(l, W_SELECT_BIAS, layer, NO_EXPERT, "", own, 1);
    if (!host)
        loader_nomem(l);
    for (uint32_t i = 0; host && of && i < n; i++)
        host[i] = i < own ? of[i] : ABOVE;
    if (!l->failed)
        v = loader_host_vector(l, host, n);
    free(host), free(of);
    return v;
}

static float *load_select_bias(struct loader *l, int layer, uint32_t n)
{
    const bool more = moe_sight_behind(l, layer);
    if (l->d->spec.moe.n_always)
        return load_whole_bias(l, layer, n);
    return loader_plain_vector(l, W_SELECT_BIAS, layer, more ? 2 * n : n, (struct slice){0, n});
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const int layer = (int)at;
    struct experts *y = calloc(1, sizeof(*y));
    if (!y || !(y->up = calloc(s->moe.n_experts, sizeof(struct weight *))) ||
        !(y->down = calloc(s->moe.n_experts, sizeof(struct weight *)))) {
        loader_nomem(l);
        return y;
    }
    y->n = s->moe.n_experts;
    const uint32_t all = y->n + s->moe.n_zero;
    if (s->moe.router_width)
        y->before = router_load(l, layer);
    y->router = load_router(l, layer, all);
    if (s->layers[at].by_id)
        y->by_id = loader_ids(l, W_EXPERT_IDS, layer, s->vocab, s->moe.top_k, y->n);
    else if (s->moe.select_bias &&
             !(s->moe.bias_may_lack && !loader_has_named(l, W_SELECT_BIAS, layer)))
        y->select_bias = load_select_bias(l, layer, all);
    if (s->moe.expert_scale)
        y->expert_scale =
            loader_plain_vector(l, W_EXPERT_SCALE, layer, y->n, (struct slice){0, y->n});
    if (s->moe.sum_bias && l->d->split.rank == 0) /* added once, before the sum over ranks */
        y->sum_bias =
            loader_plain_vector(l, W_MOE_BIAS, layer, s->hidden, (struct slice){0, s->hidden});
    if (s->moe.shared_ffn)
        load_shared(l, y, layer);
    if (s->moe.latent)
        load_latent(l, y, layer);
    if (s->moe.result_eps > 0) {
        y->result_factors = loader_weight_vector(l, W_MOE_RESULT_NORM, layer, spec_expert_in(s));
        y->ones = loader_ones(l, spec_expert_in(s));
    }
    struct amount before = l->d->weights;
    load_experts(l, y, layer);
    if (s->moe.bias)
        load_biases(l, y, layer);
    if (s->moe.each_bias)
        y->up_bias = each_bias(l, W_MOE_UP, layer, s->moe.ffn, l->d->split.moe_ffn);
    if (s->moe.each_bias && adds_biases(l))
        y->down_bias = each_bias(l, W_MOE_DOWN, layer, s->hidden, (struct slice){0, s->hidden});
    l->d->experts.bytes += l->d->weights.bytes - before.bytes;
    l->d->experts.elements += l->d->weights.elements - before.elements;
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct experts *y = self;
    d->ops->free(d->dev, y->router_bias);
    d->ops->free(d->dev, y->up_bias);
    d->ops->free(d->dev, y->down_bias);
    d->ops->free(d->dev, y->select_bias);
    d->ops->free(d->dev, y->expert_scale);
    d->ops->free(d->dev, y->sum_bias);
    d->ops->free(d->dev, y->by_id);
    router_free(d, y->before);
    layer_free_weight(d, y->router);
    layer_free_weight(d, y->shared_up);
    layer_free_weight(d, y->shared_down);
    layer_free_weight(d, y->shared_gate);
    d->ops->free(d->dev, y->result_factors);
    d->ops->free(d->dev, y->ones);
    layer_free_norm(d, &y->latent_norm);
    layer_free_weight(d, y->in);
    layer_free_weight(d, y->out);
    for (uint32_t i = 0; i < y->n; i++) {
        layer_free_weight(d, y->up[i]);
        layer_free_weight(d, y->down[i]);
    }
    free(y->up);
    free(y->down);
    free(y);
}

/* ---------------------------------------------------------------- forward */

void moe_add_shared(struct decoder *d, const void *self, struct sub_step *s)
{
    const struct experts *y = self;
    if (!y->shared_up)
        return;
    const uint32_t ffn = d->split.shared_ffn.n, hidden = d->spec.hidden, t = s->tokens;
    const bool plain = d->spec.moe.plain;
    float *up = work_take(&s->work, t, 2 * (size_t)ffn), *act = work_take(&s->work, t, ffn);
    float *r = work_take(&s->work, t, hidden), *gate = work_take(&s->work, t, 1);
    const uint32_t up_width = plain ? ffn : 2 * ffn;
    layer_project(d, s->layer, &(struct projection){y->shared_up, NULL, LORA_UP, up_width},
                  plain ? act : up, s->in, hidden, t);
    if (plain)
        d->ops->act(d->dev, act, t, ffn, spec_act(&d->spec, s->layer));
    else
        d->ops->act_mul(d->dev, act, up, t, ffn, spec_act(&d->spec, s->layer));
    layer_project(d, s->layer, &(struct projection){y->shared_down, NULL, LORA_DOWN, hidden}, r,
                  act, ffn, t);
    if (y->shared_gate) {
        d->ops->linear(d->dev, gate, s->in, t, y->shared_gate, NULL);
        d->ops->gate_rows(d->dev, r, t, hidden, gate, false);
    }
    d->ops->add_norm(d->dev, NULL, s->out, r, 1, t, hidden, NULL);
}

/* s->out = this rank's share of what the last matrix makes of the experts' sum, in latent space.
 * With a norm before that matrix it is all of it or 0, see load_latent(). */
static int widen(struct decoder *d, const struct experts *y, struct sub_step *s, float *sum,
                 struct err *e)
{
    const uint32_t n = d->spec.moe.latent;
    if (d->spec.moe.latent_norm_last) {
        if (layer_sum(d, sum, (size_t)s->tokens * n, e))
            return -1;
        d->ops->norm(d->dev, sum, sum, s->tokens, n, &y->latent_norm);
    }
    d->ops->linear(d->dev, s->out, sum, s->tokens, y->out, NULL);
    return 0;
}

int moe_run(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct experts *y = self;
    const struct decoder_spec *m = &d->spec;
    const float *x = s->in, *router_x = s->router_in;
    float *sum = s->out;
    const uint32_t latent_width = m->moe.latent;
    const struct gate_norm result = {.kind = GATE_PRODUCT,
                                     .gate = y->result_factors,
                                     .w = y->ones,
                                     .group = spec_expert_in(m),
                                     .eps = m->moe.result_eps};
    if (m->moe.early_router)
        router_x = d->scratch.carried + (size_t)s->first * m->hidden;
    if (y->before)
        router_x = router_run(d, y->before, s);
    if (y->in) {
        float *latent = work_take(&s->work, s->tokens, latent_width);
        sum = work_take(&s->work, s->tokens, latent_width);
        d->ops->linear(d->dev, latent, s->in, s->tokens, y->in, NULL);
        if (m->moe.latent_norm)
            d->ops->norm(d->dev, latent, latent, s->tokens, latent_width, &y->latent_norm);
        x = latent;
        router_x = router_x ? router_x : s->in;
    }
    d->ops->moe(d->dev, sum, x, s->tokens,
                &(struct moe){.router = y->router,
                              .up = y->up,
                              .down = y->down,
                              .n_experts = m->moe.n_experts,
                              .top_k = m->moe.top_k,
                              .n_zero = m->moe.n_zero,
                              .adds_zero = d->split.rank == 0 && !m->moe.zero_nothing,
                              .renormalise = m->moe.renormalise,
                              .score = m->moe.score,
                              .jitter = m->moe.jitter,
                              .scale_input = m->moe.scale_input,
                              .expert_scale = y->expert_scale,
                              .router_x = router_x,
                              .scale = m->moe.scale,
                              .by_id = y->by_id,
                              .n_ids = m->vocab,
                              .select_bias = y->select_bias,
                              .select_logits = m->moe.select_logits,
                              .n_groups = m->moe.n_groups,
                              .top_groups = m->moe.top_groups,
                              .group_pairs = m->moe.group_pairs,
                              .act = spec_moe_act(m, s->layer),
                              .plain = m->moe.plain,
                              .router_bias = y->router_bias,
                              .up_bias = y->up_bias,
                              .down_bias = y->down_bias,
                              .sum_bias = y->sum_bias,
                              .result_norm = y->result_factors ? &result : NULL});
    return y->out ? widen(d, y, s, sum, e) : 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    if (moe_run(d, self, s, e))
        return -1;
    moe_add_shared(d, self, s);
    return 0;
}

const struct sublayer_ops ffn_moe = {"moe", width, load, release, forward};
