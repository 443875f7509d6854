/* The text model of dots3 note: latent attention in two sizes, one with sliding windows and one
 * with indexers; a norm of the rotary part of keys, and a per-head output gate. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROTATION_SELECTS, ROTATION_WINDOW, ROTATION_FULL }; /* of the kinds of layers */

/* `key` of layers with a window: the first one's of per_layer_config, else the usual one; in files
 * without such a list that with "swa_" before it, else `def`. */
static uint32_t window_size(struct config *c, uint32_t layer, const char *key, uint32_t def,
                            uint32_t usual)
{
    char own[48];
    const uint32_t n = config_own_size(c, layer, key);
    snprintf(own, sizeof(own), "swa_%s", key);
    if (json_get(c->root, "per_layer_config"))
        return n ? n : usual;
    return config_u32_or(c, own, def, 1, 1u << 16);
}

/* Layers of a kind have one size. */
static void check_sizes(struct config *c, const struct decoder_spec *s)
{
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct mla_spec *m = spec_mla(s, i);
        const struct {
            const char *key;
            uint32_t is;
        } sizes[] = {{"num_attention_heads", spec_heads(s, i)},
                     {"q_lora_rank", m->q_rank},
                     {"kv_lora_rank", m->kv_rank},
                     {"qk_nope_head_dim", m->nope},
                     {"qk_rope_head_dim", m->rope},
                     {"v_head_dim", m->v}};
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            const uint32_t own = config_own_size(c, i, sizes[k].key);
            if (own && own != sizes[k].is)
                config_fail(c, "`per_layer_config`: `%s` of layer %u is not that of its kind",
                            sizes[k].key, i);
        }
    }
}

static void window_sizes(struct config *c, struct decoder_spec *s, uint32_t layer)
{
    const struct mla_spec *all = &s->mla;
    struct mla_spec *m = &s->mla_other;
    const uint32_t heads = window_size(c, layer, "num_attention_heads", 64, s->n_heads);
    const uint32_t dim = window_size(c, layer, "head_dim", 256, all->nope + all->rope);
    *m = *all;
    m->q_rank = window_size(c, layer, "q_lora_rank", 1024, all->q_rank);
    m->kv_rank = window_size(c, layer, "kv_lora_rank", 1024, all->kv_rank);
    m->nope = window_size(c, layer, "qk_nope_head_dim", 192, all->nope);
    m->v = window_size(c, layer, "v_head_dim", 128, all->v);
    m->rope =
        window_size(c, layer, "qk_rope_head_dim", dim > m->nope ? dim - m->nope : 0, all->rope);
    if (!m->rope || m->rope % 2 || m->rope > ROPE_MAX_DIM)
        config_fail(c, "layers with a window: `qk_rope_head_dim` must be even and at most %d",
                    ROPE_MAX_DIM);
    for (uint32_t i = layer; i < s->n_layers; i++)
        if (s->layers[i].window) {
            s->layers[i].other_mla = true;
            s->layers[i].n_heads = s->layers[i].n_kv_heads = heads;
        }
}

/* The kinds of layers, and the first one with a window, if there is one. Files of the repository
 * call layers with an indexer "full_attention". */
static uint32_t kinds(struct config *c, struct decoder_spec *s)
{
    const cJSON *word = config_layer_list(c, s, "layer_types");
    const uint32_t window =
        config_u32_or(c, "sliding_window",
                      config_u32_or(c, "sliding_window_size", 512, 1, 1u << 30), 1, 1u << 30);
    const bool listed = json_get(c->root, "per_layer_config") && !json_get(c->root, "use_dsa");
    const bool selects = config_bool_or(c, "use_dsa", true);
    const bool windows = config_bool_or(c, "use_sliding_window", true);
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        struct layer_spec *l = &s->layers[i];
        const char *type = word && cJSON_IsString(word)      ? word->valuestring
                           : word                            ? ""
                           : !windows || i < 2 || i % 4 == 1 ? "indexed_attention"
                                                             : "sliding_attention";
        const bool full = strcmp(type, "full_attention") == 0;
        l->mixer = MIXER_MLA;
        if (strcmp(type, "sliding_attention") == 0)
            l->window = window;
        else if (!full && strcmp(type, "indexed_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", type);
        l->selects_none = l->window || (listed ? full : !selects);
        l->rope = l->window ? ROTATION_WINDOW : l->selects_none ? ROTATION_FULL : ROTATION_SELECTS;
        first = l->window && first == UINT32_MAX ? i : first;
    }
    return first;
}

/* The rotation of a kind of layers: one of its own, or that of all. */
static void rotation(struct config *c, struct rope_spec *r, uint32_t dim, const char *kind,
                     double theta)
{
    const cJSON *all = config_object(c, c->root, "rope_parameters");
    if (!all)
        all = config_object(c, c->root, "rope_scaling");
    const cJSON *own = json_get(all, kind), *set = own ? own : all;
    const char *type = json_str(set, "rope_type", json_str(set, "type", "default"));
    if (strcmp(type, "default") != 0 || c->rope_scaling)
        config_fail(c, "rope type `%.40s` is not supported",
                    c->rope_scaling ? c->rope_scaling : type);
    *r = (struct rope_spec){.kind = ROPE_DEFAULT,
                            .interleaved = true,
                            .dim = dim,
                            .theta = json_num(set, "rope_theta", theta),
                            .attention_factor = 1};
    if (!(r->theta > 1))
        config_fail(c, "`rope_theta` must be above 1");
}

static void attention(struct config *c, struct decoder_spec *s)
{
    static const char *const names[] = {"indexed_attention", "sliding_attention", "full_attention"};
    const uint32_t first = kinds(c, s);
    bool selects = false;
    config_latent(c, s, 1024, 128);
    s->mla.eps = s->norm.eps;
    s->mla.turn_norm = true;
    if (first < s->n_layers)
        window_sizes(c, s, first);
    check_sizes(c, s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        const struct mla_spec *m = spec_mla(s, i);
        rotation(c, &s->rope[l->rope], m->rope, names[l->rope],
                 l->window ? config_num_or(c, "swa_rope_theta", 5e4)
                           : config_num_or(c, "rope_theta", 8e7));
        l->attn_scale = sqrtf((float)s->hidden / (float)m->q_rank / (float)(m->nope + m->rope));
        selects |= !l->selects_none;
    }
    s->mla.kv_scale = sqrtf((float)s->hidden / (float)s->mla.kv_rank);
    if (first < s->n_layers)
        s->mla_other.kv_scale = sqrtf((float)s->hidden / (float)s->mla_other.kv_rank);
    if (selects)
        config_indexer(
            c, s,
            &(struct index_defaults){.heads = 64, .every = 1, .interleaved = true, .eps = 1e-6});
    s->attn_gate = ATTN_GATE_BY_HEAD;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const cJSON *often = json_get(c->root, "moe_layer_freq");
    const uint32_t dense = config_u32_or(c, "first_k_dense_replace", 1, 0, SPEC_MAX_LAYERS);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    s->moe.shared_ffn = config_u32_or(c, "n_shared_experts", 1, 1, 64) *
                        config_u32_or(c,
                                      config_either(c, "moe_shared_expert_intermediate_size",
                                                    "shared_experts_intermediate_size"),
                                      1536, 1, 1u << 22);
    config_mlp_layer_types(c, s, dense);
    if (json_get(c->root, "mlp_layer_types") || !often)
        return;
    const uint32_t every =
        cJSON_IsArray(often) ? 1 : config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = i >= dense && (cJSON_IsArray(often)
                                              ? config_layer_num(c, s, "moe_layer_freq", i, 1) != 0
                                              : i % every == 0);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 256, .max_positions = 524288, .norm_eps = 1e-5});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    attention(c, s);
    experts(c, s);
}

const struct arch arch_dots3_note = {
    .types = (const char *const[]){"dots3_note_text", "dots3_note", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_O, NAMES_LLAMA_MLP, NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS, NAMES_LATENT,
              NAMES_INDEXER, [W_K_TURN_NORM] = "model.layers.*.self_attn.k_rope_only_layernorm",
              [W_ATTN_GATE] = "model.layers.*.self_attn.g_proj",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
