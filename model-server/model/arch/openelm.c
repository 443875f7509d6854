/* OpenELM (Apple, arXiv 2404.14619): Llama with layer-wise scaling of the number of heads and of
 * the MLP width, per-head QK norm, and fused q, k, v and fused gate, up. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>

static double listed(struct config *c, const char *key, uint32_t layer)
{
    const cJSON *j = cJSON_GetArrayItem(json_get(c->root, key), (int)layer);
    return cJSON_IsNumber(j) ? j->valuedouble : 0;
}

static uint32_t heads(struct config *c, const char *key, uint32_t layer)
{
    const double n = listed(c, key, layer);
    if (n >= 1 && n <= 1u << 16 && n == floor(n))
        return (uint32_t)n;
    config_fail(c, "`%s` of layer %u must be an integer from 1 to 65536", key, layer);
    return 1;
}

/* The nearest multiple of `unit`, but not less than nine tenths of the width. */
static uint32_t ffn_of(struct config *c, const struct decoder_spec *s, uint32_t layer)
{
    const double unit = config_u32_or(c, "ffn_dim_divisor", 256, 1, 1u << 20);
    const double want = listed(c, "ffn_multipliers", layer) * s->hidden;
    double n = floor((want + unit / 2) / unit) * unit;
    n = n < unit ? unit : n;
    n = n < 0.9 * want ? n + unit : n;
    if (n >= 1 && n <= 1u << 22)
        return (uint32_t)n;
    config_fail(c, "`ffn_multipliers` of layer %u are not supported", layer);
    return 1;
}

static void layers(struct config *c, struct decoder_spec *s)
{
    static const char *const keys[] = {"num_query_heads", "num_kv_heads", "ffn_multipliers"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!config_layer_list(c, s, keys[i]))
            config_fail(c, "`%s` is missing", keys[i]);
    for (uint32_t i = 0; i < s->n_layers && !c->failed; i++) {
        struct layer_spec *l = &s->layers[i];
        l->n_heads = heads(c, "num_query_heads", i);
        l->n_kv_heads = heads(c, "num_kv_heads", i);
        l->ffn = ffn_of(c, s, i);
        l->attn_scale = spec_head_scale(s);
        if (l->n_heads % l->n_kv_heads)
            config_fail(c, "layer %u: %u key-value heads do not divide %u heads", i, l->n_kv_heads,
                        l->n_heads);
        s->n_heads = i == 0 || l->n_heads > s->n_heads ? l->n_heads : s->n_heads;
        s->n_kv_heads = i == 0 || l->n_kv_heads > s->n_kv_heads ? l->n_kv_heads : s->n_kv_heads;
        s->ffn = l->ffn > s->ffn ? l->ffn : s->ffn;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 64,
                                             .max_positions = 2048,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .heads = 1,
                                             .kv_heads = 1,
                                             .ffn_by_layer = true,
                                             .tied = true});
    s->tied = config_bool_or(c, "share_input_output_layers", s->tied);
    config_only(c, "ffn_with_glu", true);
    config_only_word(c, "normalization_layer_name", "rms_norm");
    s->act = config_act(c, "activation_fn_name", "swish");
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    if (config_bool_or(c, "normalize_qk_projections", false))
        s->qk_norm = QK_NORM_HEAD;
    layers(c, s);
}

static const struct config_key keys[] = {{"hidden_size", "model_dim"},
                                         {"num_hidden_layers", "num_transformer_layers"},
                                         {"max_position_embeddings", "max_context_length"},
                                         {"rope_theta", "rope_freq_constant"},
                                         {"num_attention_heads", NULL},
                                         {"num_key_value_heads", NULL},
                                         {NULL, NULL}};

#define LAYER "transformer.layers.*."
const struct arch arch_openelm = {
    .types = (const char *const[]){"openelm", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.token_embeddings",
              [W_FINAL_NORM] = "transformer.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = LAYER "attn_norm",
              [W_QKV] = LAYER "attn.qkv_proj",
              [W_O] = LAYER "attn.out_proj",
              [W_Q_NORM] = LAYER "attn.q_norm",
              [W_K_NORM] = LAYER "attn.k_norm",
              [W_MLP_NORM] = LAYER "ffn_norm",
              [W_GATE_UP] = LAYER "ffn.proj_1",
              /* in GGUF files */
              [W_GATE] = LAYER "ffn.gate",
              [W_UP] = LAYER "ffn.up",
              [W_DOWN] = LAYER "ffn.proj_2"},
    .configure = configure,
};
