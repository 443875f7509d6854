/* Gemma 4, the text decoder: two head sizes, keys used as values in some layers, a norm of the
 * values, a scale for each layer; the small models have per-layer embeddings and share keys and
 * values between layers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Tokens of a picture see each other in the layers with windows, as far as these reach back. */
static void see_pictures(struct config *c, struct decoder_spec *s, const char *def)
{
    const char *kind = config_str_or(c, "use_bidirectional_attention", def);
    if (*kind && strcmp(kind, "vision") != 0)
        config_fail(c, "`use_bidirectional_attention`: `%.40s` is not supported", kind);
    for (uint32_t i = 0; *kind && i < s->n_layers; i++)
        if (s->layers[i].window)
            s->layers[i].mutual = MUTUAL_AHEAD;
}

/* All but every sixth and the last. */
static bool sliding(struct config *c, uint32_t layer)
{
    return (layer + 1) % 6 != 0 && layer + 1 != (uint32_t)config_num_or(c, "num_hidden_layers", 0);
}

/* Of a full layer: what `key` says of it in per_layer_config (transformers 5), or `global`. */
static uint32_t full_size(struct config *c, uint32_t layer, const char *key, const char *global,
                          uint32_t def)
{
    const uint32_t own = config_own_size(c, layer, key);
    return own ? own : config_u32_or(c, global, def, 1, 65536);
}

static void layer_sizes(struct config *c, struct decoder_spec *s)
{
    const bool k_is_v = config_bool_or(c, "attention_k_eq_v", false);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        l->attn_scale = 1;
        l->rope = l->window ? 1 : 0;
        if (l->window)
            continue;
        l->head_dim = full_size(c, i, "head_dim", "global_head_dim", s->head_dim);
        l->n_kv_heads =
            full_size(c, i, "num_key_value_heads",
                      k_is_v ? "num_global_key_value_heads" : "num_key_value_heads", s->n_kv_heads);
        l->k_is_v = k_is_v;
        if (l->head_dim > ROPE_MAX_DIM || s->n_heads % l->n_kv_heads)
            config_fail(c, "layer %u: %u heads of %u, %u of keys and values", i, s->n_heads,
                        l->head_dim, l->n_kv_heads);
        s->rope[0].dim = l->head_dim;
    }
}

/* The last layers read others' keys and values; some have wider MLPs. */
static void share_kv(struct config *c, struct decoder_spec *s)
{
    const uint32_t own = config_shared_kv(c, s, 0);
    const bool wide = config_bool_or(c, "use_double_wide_mlp", false);
    for (uint32_t i = own; i < s->n_layers; i++)
        s->layers[i].ffn = wide ? 2 * s->ffn : 0;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    s->moe.n_experts = config_u32_or(c, "num_experts", 128, 1, 4096);
    s->moe.top_k = config_u32_or(c, "top_k_experts", 8, 1, 4096);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.renormalise = s->moe.expert_scale = s->moe.beside = true;
    config_check_moe(c, s);
    config_moe_layers(s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool unified = strcmp(config_str_or(c, "model_type", ""), "gemma4_unified_text") == 0;
    if (strcmp(config_str_or(c, "model_type", ""), "gemma4_text") == 0)
        config_absent(c, "{\"num_attention_heads\":8,\"num_key_value_heads\":4,"
                         "\"hidden_size_per_layer_input\":256}");
    config_absent_rope(
        c, "{\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":10000},\"full_attention\":{"
           "\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"
           "\"rope_theta\":1000000}}}");
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = unified ? 262144 : 131072,
                                             .norm_eps = 1e-6,
                                             .tied = true});
    config_gemma(c, s, 0);
    s->qk_norm = QK_NORM_HEAD;
    s->v_norm = s->layer_scale = true;
    s->per_layer = config_u32_or(c, "hidden_size_per_layer_input", 0, 0, 65536);
    config_windows(c, s, unified ? 1024 : 512, sliding);
    s->rope[0].dim = s->head_dim;
    layer_sizes(c, s);
    config_rope(c, s, 1000000);
    config_window_rope(c, s, 10000);
    s->rope[1].dim = s->head_dim;
    share_kv(c, s);
    see_pictures(c, s, unified ? "vision" : "");
    s->given_id = config_u32_or(c, "pad_token_id", 0, 0, s->vocab - 1);
    if (config_bool_or(c, "enable_moe_block", false))
        experts(c, s);
}

const struct arch arch_gemma4 = {
    .types = (const char *const[]){"gemma4_text", "gemma4_unified_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_NORMS_AROUND,
              NAMES_GATED_MLP, [W_ROUTER] = "model.layers.*.router.proj",
              [W_ROUTER_SCALE] = "model.layers.*.router.scale",
              [W_EXPERT_SCALE] = "model.layers.*.router.per_expert_scale",
              [W_MOE_GATE_UP] = "model.layers.*.experts.gate_up_proj",
              [W_MOE_GATE] = "model.layers.*.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.experts.*.up_proj",
              [W_MOE_DOWN] = "model.layers.*.experts.down_proj|model.layers.*.experts.*.down_proj",
              [W_MOE_NORM] = "model.layers.*.pre_feedforward_layernorm_2",
              [W_POST_MOE_NORM] = "model.layers.*.post_feedforward_layernorm_2",
              [W_POST_DENSE_NORM] = "model.layers.*.post_feedforward_layernorm_1",
              [W_LAYER_SCALE] = "model.layers.*.layer_scalar", NAMES_LAYER_EMBED},
    .configure = configure,
};
