/* sight.c - experts of two kinds in one layer: tokens of pictures have their own router and
 * experts, all others those of ffn_moe; one shared expert is that of all tokens (ERNIE 4.5 VL,
 * https://yiyan.baidu.com/blog/publication/ERNIE_Technical_Report.pdf). Tokens of one kind that are
 * adjacent are one product; each result depends on its own token alone. */
#include "model-server/model/decoder.h"
#include "model-server/model/ffn/moe.h"
#include <stdlib.h>

struct sight {
    void *texts; /* of ffn_moe */
    struct weight *router;
    struct weight **up, **down; /* [n_experts] of [2 * ffn, hidden], [hidden, ffn] */
    float *select_bias;
    uint32_t n;
};

static uint32_t width(const struct decoder *d, uint32_t layer) { return ffn_moe.width(d, layer); }

/* This rank's part of an expert's width. */
static struct slice part_of(const struct loader *l)
{
    const struct split *s = &l->d->split;
    const uint32_t ffn = l->d->spec.moe.sight_ffn;
    return s->experts.n < l->d->spec.moe.n_experts
               ? (struct slice){0, ffn}
               : slice_of(ffn, (uint32_t)s->rank, (uint32_t)s->world);
}

/* Gate over up of one expert: this rank's rows. */
static void up_parts(struct loader *l, int layer, uint32_t expert, enum fused fused,
                     struct mat_part parts[2])
{
    static const enum role roles[] = {W_MOE_GATE, W_MOE_UP};
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = s->moe.sight_ffn, behind = s->moe.n_experts + expert;
    const struct slice f = part_of(l);
    if (fused != FUSED_NONE) {
        const struct mat_part both = loader_expert(l, W_SIGHT_GATE_UP, layer, (int)expert, fused,
                                                   2 * (int64_t)ffn, s->hidden);
        parts[0] = loader_rows(both, f.first, f.n);
        parts[1] = loader_rows(both, ffn + f.first, f.n);
        return;
    }
    for (int i = 0; i < 2; i++)
        parts[i] = loader_rows(loader_part(l, roles[i], layer, (int)behind, false, ffn, s->hidden),
                               f.first, f.n);
}

/* This rank's columns of its last matrix. */
static struct mat_part down_part(struct loader *l, int layer, uint32_t expert, enum fused fused)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = s->moe.sight_ffn, behind = s->moe.n_experts + expert;
    const struct slice f = part_of(l);
    const struct mat_part p =
        fused != FUSED_NONE
            ? loader_expert(l, W_SIGHT_DOWN, layer, (int)expert, fused, s->hidden, ffn)
            : loader_part(l, W_MOE_DOWN, layer, (int)behind, false, s->hidden, ffn);
    return loader_cut(p, 0, s->hidden, f.first, f.n);
}

static void load_experts(struct loader *l, struct sight *y, int layer)
{
    const enum fused fused = loader_fused(l, layer);
    const struct amount before = l->d->weights;
    struct mat_part parts[2];
    for (uint32_t i = 0; i < y->n && !l->failed; i++) {
        const bool here = i - l->d->split.experts.first < l->d->split.experts.n;
        if (!here && !l->c)
            continue;
        up_parts(l, layer, i, fused, parts);
        if (here)
            y->up[i] = loader_pack(l, parts, 2, l->d->dtype, l->d->quant);
        else
            loader_drop(l);
        parts[0] = down_part(l, layer, i, fused);
        if (here)
            y->down[i] = loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
        else
            loader_drop(l);
    }
    l->d->tables.bytes += l->d->weights.bytes - before.bytes;
    l->d->tables.elements += l->d->weights.elements - before.elements;
}

/* Small, and its ties matter: fp32. */
static struct weight *load_router(struct loader *l, int layer, uint32_t n)
{
    const uint32_t hidden = l->d->spec.hidden;
    struct mat_part p;
    if (moe_sight_behind(l, layer))
        p = loader_turned(loader_plain_matrix(l, W_SIGHT_ROUTER, layer, hidden, n));
    else
        p = loader_part(l, W_SIGHT_ROUTER, layer, NO_EXPERT, false, n, hidden);
    return loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
}

static float *load_select_bias(struct loader *l, int layer, uint32_t n)
{
    if (moe_sight_behind(l, layer))
        return loader_plain_vector(l, W_SELECT_BIAS, layer, 2 * n, (struct slice){n, n});
    return loader_plain_vector(l, W_SIGHT_SELECT_BIAS, layer, n, (struct slice){0, n});
}

static void *load(struct loader *l, uint32_t layer)
{
    struct sight *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->texts = ffn_moe.load(l, layer);
    y->n = l->d->spec.moe.n_experts;
    y->up = calloc(y->n, sizeof(struct weight *));
    y->down = calloc(y->n, sizeof(struct weight *));
    if (!y->up || !y->down) {
        loader_nomem(l);
        y->n = 0;
        return y;
    }
    y->router = load_router(l, (int)layer, y->n);
    y->select_bias = load_select_bias(l, (int)layer, y->n);
    load_experts(l, y, (int)layer);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct sight *y = self;
    if (y->texts)
        ffn_moe.free(d, y->texts);
    layer_free_weight(d, y->router);
    d->ops->free(d->dev, y->select_bias);
    for (uint32_t i = 0; i < y->n; i++) {
        layer_free_weight(d, y->up[i]);
        layer_free_weight(d, y->down[i]);
    }
    free(y->up);
    free(y->down);
    free(y);
}

/* out = this rank's share of the pictures' experts of the rows of `s`. */
static void run_pictures(struct decoder *d, const struct sight *y, const struct sub_step *s)
{
    const struct moe_spec *m = &d->spec.moe;
    d->ops->moe(d->dev, s->out, s->in, s->tokens,
                &(struct moe){.router = y->router,
                              .up = y->up,
                              .down = y->down,
                              .n_experts = y->n,
                              .top_k = m->top_k,
                              .renormalise = m->renormalise,
                              .score = m->score,
                              .scale = m->scale,
                              .select_bias = y->select_bias,
                              .act = spec_moe_act(&d->spec, s->layer)});
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct sight *y = self;
    const bool *sight = d->step->sight ? d->step->sight + s->first : NULL;
    const uint32_t hidden = d->spec.hidden;
    for (uint32_t i = 0, n; i < s->tokens; i += n) {
        struct sub_step run = *s;
        for (n = 1; i + n < s->tokens && (!sight || sight[i + n] == sight[i]); n++)
            ;
        run.tokens = n;
        run.first = s->first + i;
        run.in = s->in + (size_t)i * hidden;
        run.out = s->out + (size_t)i * hidden;
        if (sight && sight[i])
            run_pictures(d, y, &run);
        else if (moe_run(d, y->texts, &run, e))
            return -1;
    }
    moe_add_shared(d, y->texts, s);
    return 0;
}

const struct sublayer_ops ffn_sight = {.name = "experts of texts and of pictures",
                                       .width = width,
                                       .load = load,
                                       .free = release,
                                       .forward = forward};
