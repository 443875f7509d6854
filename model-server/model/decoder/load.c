/* Loads and frees a decoder: this rank's part of every weight. */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/first_conv.h"
#include "model-server/model/kv_parts.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/ngrams.h"
#include "model-server/model/residual.h"
#include "model-server/model/short_conv.h"
#include "model-server/model/trigram.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t REPORT_NS = 5000000000;

/* ---------------------------------------------------------------- layers */

/* Number of ranks that allocate from the memory that this rank sees: on CPUs those of the machine.
 */
static uint64_t ranks_here(const struct decoder *d)
{
    const bool staged = !d->comm->whole && d->stages && d->stages->whole;
    const struct comm *c = staged ? d->stages : d->comm;
    return strcmp(d->ops->name, "cpu") == 0 ? comm_ranks_here(c) : 1;
}

/* Checks whether the remaining layers will fit in memory. Otherwise the kernel would kill the
 * process, without naming options. They need at least the size of the smallest layer so far. */
static void check_room(struct loader *l, uint32_t layers)
{
    const struct decoder *d = l->d;
    const uint64_t this = d->weights.bytes - l->layers_before;
    l->layers_before = d->weights.bytes;
    l->least_layer = layers > 1 && l->least_layer < this ? l->least_layer : this;
    const uint64_t more = (d->stage.n - layers) * l->least_layer * ranks_here(d);
    uint64_t free_bytes, total;
    struct err ignored = ERR_INIT;
    if (l->failed || d->sample || d->ops->memory(d->dev, &free_bytes, &total, &ignored) ||
        more <= free_bytes)
        return;
    l->failed = true;
    err_set(l->e, ERR_SYSTEM,
            "Not enough memory for the weights: %u of %u layers took %llu bytes, the others take "
            "about %llu on %llu ranks here, and %llu of %llu bytes are free (--quantize, "
            "--num-shard)",
            layers, d->stage.n, (unsigned long long)d->weights.bytes, (unsigned long long)more,
            (unsigned long long)ranks_here(d), (unsigned long long)free_bytes,
            (unsigned long long)total);
}

/* Logs progress now and then; not for small models. */
static void report(struct loader *l, int layers)
{
    const struct decoder *d = l->d;
    const int64_t now = clock_ns(), n = d->stage.n;
    if (d->progress)
        d->progress(d->progress_arg, (uint64_t)layers, (uint64_t)n);
    if (now - l->reported_ns < REPORT_NS)
        return;
    l->reported_ns = now;
    LOG(LOG_INFO, "loading weights", LOGI("percent", (int64_t)100 * layers / n),
        LOGI("seconds_left", (now - l->began) * (n - layers) / layers / 1000000000),
        LOGI("layers", layers), LOGI("of", n), LOGI("bytes", d->weights.bytes));
}

static void most_width(struct decoder *d, const struct sublayer_ops *y, uint32_t layer,
                       uint32_t *most)
{
    const uint32_t width = y->width(d, layer);
    most = y->in_tiles ? &d->tile_width : most;
    *most = width > *most ? width : *most;
}

static void load_sublayer(struct loader *l, struct sublayer *y, const struct sublayer_ops *ops,
                          uint32_t layer, uint32_t *most)
{
    most_width(l->d, ops, layer, most);
    *y = (struct sublayer){.ops = ops, .self = ops->load(l, layer)};
}

static const struct sublayer_ops *const mixers[MIXER_N] = {[MIXER_ATTENTION] = &mixer_attention,
                                                           [MIXER_DELTA] = &mixer_delta,
                                                           [MIXER_MAMBA2] = &mixer_mamba2,
                                                           [MIXER_CONV] = &mixer_conv,
                                                           [MIXER_PAIR] = &mixer_pair,
                                                           [MIXER_MLA] = &mixer_mla,
                                                           [MIXER_MAMBA] = &mixer_mamba,
                                                           [MIXER_CROSS] = &mixer_cross,
                                                           [MIXER_FIXED] = &mixer_fixed,
                                                           [MIXER_SHARED] = &mixer_shared,
                                                           [MIXER_GATED] = &mixer_gated,
                                                           [MIXER_ENTRIES] = &mixer_entries,
                                                           [MIXER_CCA] = &mixer_cca,
                                                           [MIXER_DIFFERENCE] = &mixer_difference,
                                                           [MIXER_RWKV] = &mixer_rwkv,
                                                           [MIXER_NARROW] = &mixer_narrow,
                                                           [MIXER_RELATIVE] = &mixer_relative,
                                                           [MIXER_SPAN_CONV] = &mixer_span_conv,
                                                           [MIXER_VALUE_CONV] = &mixer_value_conv,
                                                           [MIXER_FOURIER] = &mixer_fourier,
                                                           [MIXER_PROFILES] = &mixer_profiles};

static const struct sublayer_ops *ffn_of(const struct decoder_spec *s, uint32_t layer)
{
    if (s->moe.shortcut)
        return &ffn_shortcut;
    if (s->layers[layer].mixer == MIXER_RWKV)
        return &ffn_shifted;
    if (!s->layers[layer].moe)
        return &ffn_dense;
    return s->moe.beside ? &ffn_beside : s->moe.sight_ffn ? &ffn_sight : &ffn_moe;
}

/* What multiplies a sublayer's result. Gates of models that begin to be trained are 0. */
static float gate_of(struct loader *l, enum role role, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    if (!s->layers[layer].gated)
        return s->residual_scale;
    const struct mat_part p = loader_table(l, role, (int)layer, "", 1, 1);
    const float gate = p.data ? number_at(p.data, p.dtype, 0) : 0;
    loader_drop(l);
    return s->residual_scale * tanhf(gate);
}

/* The input of all heads, or of the router, passes through it: it keeps its numbers. */
static struct norm_gate load_norm_gate(struct loader *l, enum role down, int layer)
{
    const uint32_t hidden = l->d->spec.hidden, rank = l->d->spec.norm_gate;
    struct norm_gate y;
    struct mat_part p = loader_part(l, down, layer, NO_EXPERT, false, rank, hidden);
    y.down = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_part(l, down + 1, layer, NO_EXPERT, false, hidden, rank);
    y.up = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    return y;
}

/* Such a gate works where its sublayer will, and a convolution of a result where it did. */
static void take_gate_width(struct decoder *d)
{
    const uint32_t convs = d->spec.result_convs ? d->spec.hidden : 0;
    const uint32_t width = d->spec.norm_gate ? d->spec.norm_gate + d->spec.hidden : convs;
    d->mixer_width = width > d->mixer_width ? width : d->mixer_width;
    d->ffn_width = width > d->ffn_width ? width : d->ffn_width;
}

static void load_norm_gates(struct loader *l, struct layer *y, int layer)
{
    if (!l->d->spec.norm_gate)
        return;
    y->mixer_gate = load_norm_gate(l, W_ATTN_NORM_DOWN, layer);
    if (l->d->spec.layers[layer].moe)
        y->ffn_gate = load_norm_gate(l, W_MLP_NORM_DOWN, layer);
}

/* Every rank has the whole result. */
static struct short_conv *load_result_conv(struct loader *l, enum role role, int layer)
{
    const uint32_t hidden = l->d->spec.hidden;
    const struct conv_part all = {role, hidden, {0, hidden}};
    struct short_conv *c = calloc(1, sizeof(*c));
    if (c)
        short_conv_load_kept(l, c, layer, &all, 1);
    else
        loader_nomem(l);
    return c;
}

static void free_result_conv(struct decoder *d, struct short_conv *c)
{
    if (c)
        short_conv_free(d, c);
    free(c);
}

static void load_result_convs(struct loader *l, struct layer *y, int layer)
{
    if (!l->d->spec.result_convs)
        return;
    if (y->mixer.ops)
        y->mixer.conv = load_result_conv(l, W_POST_ATTN_CONV, layer);
    if (y->ffn.ops)
        y->ffn.conv = load_result_conv(l, W_POST_MLP_CONV, layer);
}

static void load_layer(struct loader *l, uint32_t at)
{
    struct decoder *d = l->d;
    const int layer = (int)at;
    struct layer *y = &d->layers[at];
    const struct decoder_spec *s = &d->spec;
    const uint32_t i = (uint32_t)layer;
    const struct layer_spec *ls = &s->layers[layer];
    if (ls->same_as) {
        *y = d->layers[ls->same_as - 1];
        return;
    }
    const enum norm_place place = spec_norms(s, at);
    const bool before = norm_place_before(place), mixer = ls->mixer != MIXER_NONE;
    if (before && mixer && !(s->no_first_norm && layer == 0))
        y->mixer_norm = loader_stream_norm(l, W_ATTN_NORM, layer, 2 * i + 1);
    if (mixer)
        load_sublayer(l, &y->mixer, mixers[ls->mixer], i, &d->mixer_width);
    if (before && !ls->no_ffn && (!s->parallel || !s->shared_norm))
        y->ffn_norm = loader_stream_norm(l, W_MLP_NORM, layer, 2 * i + 2);
    if (place != NORM_BEFORE && place != NORM_STREAM && place != NORM_NONE) {
        if (mixer)
            y->post_mixer_norm = loader_norm(l, W_POST_ATTN_NORM, layer);
        if (!ls->no_ffn)
            y->post_ffn_norm = loader_norm(l, W_POST_MLP_NORM, layer);
    }
    take_gate_width(d);
    load_norm_gates(l, y, layer);
    if (ls->ffn_norm_after)
        y->post_ffn_norm = loader_norm(l, W_POST_MLP_NORM, layer);
    if (!ls->no_ffn) {
        const uint64_t all = d->weights.elements - d->tables.elements;
        const uint64_t experts = d->experts.elements;
        load_sublayer(l, &y->ffn, ffn_of(s, i), i, &d->ffn_width);
        d->last_ffn = d->weights.elements - d->tables.elements - all;
        d->last_ffn_experts = d->experts.elements - experts;
    }
    y->mixer_by = gate_of(l, W_ATTN_TANH, i) * (ls->mixer_by != 0 ? ls->mixer_by : 1);
    y->ffn_by = gate_of(l, W_MLP_TANH, i) * (ls->ffn_by != 0 ? ls->ffn_by : 1);
    if (s->ffn_scale)
        y->ffn_by *= loader_number(l, W_FFN_SCALE, layer);
    load_result_convs(l, y, layer);
    if (place == NORM_STREAM)
        y->mixer_by = ls->add[0], y->ffn_by = ls->add[1];
    if (s->per_layer) {
        load_sublayer(l, &y->tail, &ffn_embedded, i, &d->ffn_width);
        y->post_tail_norm = loader_norm(l, W_LAYER_EMBED_POST_NORM, layer);
    }
    residual_load_layer(l, i);
    if (ls->ngrams)
        y->ngrams = decoder_ngrams_load(l, i);
    if (s->layer_scale)
        y->scale = loader_number(l, W_LAYER_SCALE, layer);
}

/* Layers before `at` that are none of the checkpoint's. */
static uint32_t repeats_before(const struct decoder_spec *s, uint32_t at)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < at; i++)
        n += s->layers[i].same_as != 0;
    return n;
}

void decoder_load_layer(struct loader *l, uint32_t at)
{
    const struct arch *const first = l->a;
    const int named = l->first_layer;
    const uint32_t second = l->d->spec.second_stack;
    const bool odd = l->d->spec.paired && at % 2, in_second = odd || (second && at >= second);
    l->paired = l->d->spec.paired;
    l->a = in_second ? first->second : first;
    l->first_layer =
        in_second ? (int)second
                  : named - (int)l->d->spec.named_from + (int)repeats_before(&l->d->spec, at);
    load_layer(l, at);
    l->a = first;
    l->first_layer = named;
}

/* Its size is counted separately: the model's tokens do not read it. */
static void load_draft(struct loader *l)
{
    struct decoder *d = l->d;
    const struct amount before = d->weights, experts = d->experts;
    if (!d->draft.ops || l->failed)
        return;
    const struct checkpoint *const own = l->c;
    l->c = d->draft.from;
    d->draft.self = d->draft.ops->load(l);
    l->c = own;
    d->drafts =
        (struct amount){d->weights.bytes - before.bytes, d->weights.elements - before.elements};
    d->experts = experts;
}

/* Encoder layers share layers of the cache, so none may read another layer's keys. */
static int check_turns(const struct decoder *d, struct err *e)
{
    for (uint32_t i = 0; d->encodes && i < d->spec.n_layers; i++)
        if (d->spec.layers[i].kv_of)
            return err_set(e, ERR_VALIDATION,
                           "a model whose layers read keys of others is served to generate only");
    return 0;
}

/* A stage without recurrent layers has cells as well, so that all ranks do the same. */
static void take_cells(struct decoder *d)
{
    bool recurs = false;
    for (uint32_t i = 0; i < d->spec.n_layers; i++) {
        const enum mixer_kind m = d->spec.layers[i].mixer;
        recurs |= m != MIXER_NONE && !(mixers[m]->stateless && mixers[m]->stateless(d));
    }
    assert(recurs || !d->state_floats); /* as their rows say */
    if (d->stages && recurs && !d->state_floats)
        layer_take_state(d, 1);
}

/* ---------------------------------------------------------------- stages */

/* Measures every layer's size on this rank, by packing a few rows of each matrix. */
static int measure(const struct loader *of, struct stage_sizes *z)
{
    struct decoder d = *of->d;
    struct loader l = *of;
    uint64_t before = 0;
    l.d = &d;
    d.sample = true;
    d.stages = NULL;
    d.packed = NULL;
    d.progress = NULL;
    d.layers = calloc(spec_all_layers(&d.spec), sizeof(d.layers[0]));
    if (!d.layers)
        return err_nomem(l.e);
    d.stage = (struct stage){0, d.spec.n_layers, true, true};
    decoder_load_first(&l);
    z->embed = d.weights.bytes;
    d.stage.begins = false; /* the head is not the embedding table, and on another rank */
    before = d.weights.bytes;
    decoder_load_last(&l, (struct amount){0});
    z->head = d.weights.bytes - before;
    for (uint32_t i = 0; i < d.spec.n_layers && !l.failed; i++) {
        before = d.weights.bytes;
        decoder_load_layer(&l, i);
        z->layer[i] = d.weights.bytes - before;
    }
    loader_drop(&l);
    decoder_free(&d);
    return l.failed ? -1 : 0;
}

/* Random weights are not measured: all layers count alike. */
static int cut(struct loader *l)
{
    struct decoder *d = l->d;
    struct stage_sizes z = {0};
    const int rank = d->stages->rank, world = d->stages->world;
    for (uint32_t i = 0; !l->c && i < d->spec.n_layers; i++)
        z.layer[i] = 1;
    if ((l->c && measure(l, &z)) || stage_cut(&d->spec, &z, rank, world, &d->stage, l->e))
        return -1;
    LOG(d->sample ? LOG_DEBUG : LOG_INFO, "stage of the pipeline", LOGI("stage", rank),
        LOGI("stages", world), LOGI("first_layer", d->stage.first), LOGI("layers", d->stage.n),
        LOGI("of", d->spec.n_layers));
    return d->sample ? 0 : stage_agree(d, l->e);
}

static void learn_rope(struct loader *l, struct rope *r)
{
    const uint32_t n = r->spec->dim / 2;
    float *by = loader_floats(l, W_ROPE_LEARNED, -1, NO_EXPERT, "", n, 1);
    for (uint32_t i = 0; by && i < n; i++)
        by[i] = expf(by[i]);
    if (by)
        rope_multiply(r, by);
    free(by);
}

/* Loads tables of all layers and rotations. */
static int begin(struct loader *l)
{
    struct decoder *d = l->d;
    if (d->stages && cut(l))
        return -1;
    if (!d->stage.n)
        d->stage = (struct stage){0, d->spec.n_layers, true, true};
    d->layers = calloc(spec_all_layers(&d->spec), sizeof(d->layers[0]));
    d->kv_layers = calloc(spec_all_layers(&d->spec), sizeof(d->kv_layers[0]));
    d->kv_at = calloc(spec_all_layers(&d->spec), sizeof(d->kv_at[0]));
    d->kv_window = calloc(spec_all_layers(&d->spec), sizeof(d->kv_window[0]));
    d->kv_in = calloc(spec_all_layers(&d->spec), sizeof(d->kv_in[0]));
    d->index_at = calloc(spec_all_layers(&d->spec), sizeof(d->index_at[0]));
    if (!d->layers || !d->kv_layers || !d->kv_at || !d->kv_window || !d->kv_in || !d->index_at)
        return err_nomem(l->e);
    kv_parts_plan(d, mixers);
    if (check_turns(d, l->e))
        return -1;
    for (int i = 0; i < SPEC_MAX_ROPES; i++) {
        rope_init(&d->rope[i], &d->spec.rope[i], d->spec.max_positions);
        if (d->spec.rope[i].learned)
            learn_rope(l, &d->rope[i]);
    }
    decoder_load_ends(l);
    return l->failed ? -1 : 0;
}

void decoder_load_outer(struct loader *l)
{
    struct decoder *d = l->d;
    if (begin(l))
        l->failed = true;
    loader_drop(l);
    take_gate_width(d);
    for (uint32_t i = 0; !l->failed && i < d->spec.n_layers; i++) { /* scratch is for any layer */
        const struct layer_spec *ls = &d->spec.layers[i];
        if (ls->mixer != MIXER_NONE)
            most_width(d, mixers[ls->mixer], i, &d->mixer_width);
        if (!ls->no_ffn)
            most_width(d, ffn_of(&d->spec, i), i, &d->ffn_width);
    }
}

int decoder_load(struct decoder *d, const struct arch *a, const struct checkpoint *c,
                 const struct stored *how, struct err *e)
{
    struct loader l = {
        .d = d, .a = a, .c = c, .how = how, .e = e, .reported_ns = clock_ns(), .began = clock_ns()};
    if (d->spec.head_pad && c && !(l.zeros = calloc(d->spec.hidden, sizeof(double))))
        return err_nomem(e);
    if (begin(&l)) {
        free(l.zeros);
        return -1;
    }
    l.layers_before = d->weights.bytes;
    for (uint32_t i = 0; i < d->stage.n && !l.failed; i++) {
        decoder_load_layer(&l, d->stage.first + i);
        check_room(&l, i + 1);
        report(&l, (int)i + 1);
    }
    take_cells(d);
    load_draft(&l);
    loader_drop(&l);
    free(l.zeros);
    return l.failed ? -1 : 0;
}

/* ---------------------------------------------------------------- and off it */

void decoder_free_layer(struct decoder *d, uint32_t layer)
{
    struct layer *y = &d->layers[layer];
    struct norm *norms[] = {&y->mixer_norm, &y->post_mixer_norm, &y->ffn_norm, &y->post_ffn_norm,
                            &y->post_tail_norm};
    struct sublayer *subs[] = {&y->mixer, &y->ffn, &y->tail};
    if (d->spec.layers[layer].same_as) { /* they are shared with an earlier layer */
        *y = (struct layer){0};
        return;
    }
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        layer_free_norm(d, norms[i]);
    for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++)
        if (subs[i]->self)
            subs[i]->ops->free(d, subs[i]->self);
    layer_free_weight(d, y->mixer_gate.down), layer_free_weight(d, y->mixer_gate.up);
    layer_free_weight(d, y->ffn_gate.down), layer_free_weight(d, y->ffn_gate.up);
    free_result_conv(d, y->mixer.conv);
    free_result_conv(d, y->ffn.conv);
    residual_free_layer(d, layer);
    decoder_ngrams_free(d, y->ngrams);
    *y = (struct layer){0};
}

void decoder_free(struct decoder *d)
{
    for (uint32_t i = 0; d->layers && i < spec_all_layers(&d->spec); i++)
        decoder_free_layer(d, i);
    if (d->draft.self)
        d->draft.ops->free(d, d->draft.self);
    free(d->layers), free(d->kv_layers), free(d->kv_at), free(d->kv_window), free(d->kv_in);
    free(d->index_at);
    if (d->head != d->embed)
        layer_free_weight(d, d->head);
    layer_free_weight(d, d->embed);
    layer_free_weight(d, d->other_embed);
    layer_free_weight(d, d->positions);
    layer_free_weight(d, d->embed_inside);
    layer_free_weight(d, d->embed_project);
    layer_free_weight(d, d->spectrum);
    decoder_altup_free(d);
    residual_free_last(d);
    decoder_stacks_free(d);
    decoder_affine_free_first(d);
    first_conv_free(d, d->first_conv);
    trigram_free(d, d->trigram);
    layer_free_weight(d, d->head_project);
    d->ops->free(d->dev, d->head_project_bias);
    layer_free_norm(d, &d->head_norm);
    d->ops->free(d->dev, d->embed_bias);
    layer_free_norm(d, &d->embed_norm);
    layer_free_norm(d, &d->final_norm);
    d->ops->free(d->dev, d->head_bias);
    d->ops->free(d->dev, d->head_factors);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_free(&d->rope[i]);
    kv_parts_free(d);
    decoder_cross_free(d);
    d->ops->free(d->dev, d->state);
    d->ops->free(d->dev, d->scratch.memory);
    d->ops->free(d->dev, d->scratch.given);
    free(d->scratch.given_host);
    free(d->scratch.host), free(d->scratch.spans), free(d->scratch.out_rows), free(d->scratch.ids);
    free(d->scratch.last), free(d->scratch.last_spans);
}
