/* OLMo Hybrid: pre-norm layers of the gated delta rule (arXiv 2412.06464), with beta up to 2 for
 * negative eigenvalues (arXiv 2411.12537); every fourth layer is OLMo 3's attention with norms
 * after the sublayers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>

static bool not_fourth(struct config *c, uint32_t layer) { return (void)c, layer % 4 != 3; }

/* Released files have no base: their attention does not rotate. */
static bool rotates(const struct config *c)
{
    return cJSON_IsNumber(json_get(c->root, "rope_theta")) ||
           cJSON_IsNumber(json_get(json_get(c->root, "rope_parameters"), "rope_theta"));
}

static void delta(struct config *c, struct decoder_spec *s)
{
    struct recur_spec *r = &s->recur;
    r->key_heads = config_u32_or(c, "linear_num_key_heads", s->n_heads, 1, 1u << 16);
    r->heads = config_u32_or(c, "linear_num_value_heads", s->n_heads, 1, 1u << 16);
    const double dim = fmax(floor(0.75 * s->hidden / r->key_heads), 1);
    r->key_dim = config_u32_or(c, "linear_key_head_dim", (uint32_t)dim, 1, CONFIG_MOST_DIM);
    r->value_dim = config_u32_or(c, "linear_value_head_dim", 2 * r->key_dim, 1, CONFIG_MOST_DIM);
    config_delta_rest(c, s, config_u32_or(c, "linear_conv_kernel_dim", 4, 2, CONV_MOST));
    r->apart = true;
    r->beta_scale = config_bool_or(c, "linear_allow_neg_eigval", true) ? 2 : 1;
    r->gate_eps = 1e-5F; /* whatever the file's is */
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 65536,
                                             .norm_eps = 1e-6,
                                             .rope_theta = rotates(c) ? 500000 : 0});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_ALL;
    delta(c, s);
    config_mixers(c, s, MIXER_DELTA, not_fourth);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].norm_after = s->layers[i].mixer == MIXER_ATTENTION;
}

/* Saved files of transformers and those of the hub name the norms of delta layers differently. */
const struct arch arch_olmo_hybrid = {
    .types = (const char *const[]){"olmo_hybrid", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm|"
                              "model.layers.*.attention_layer_norm",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm|"
                             "model.layers.*.feedforward_layer_norm",
              [W_POST_ATTN_NORM] = "model.layers.*.post_attention_layernorm|"
                                   "model.layers.*.feedforward_layer_norm",
              [W_POST_MLP_NORM] = "model.layers.*.post_feedforward_layernorm",
              [W_Q] = "model.layers.*.self_attn.q_proj|model.layers.*.linear_attn.q_proj",
              [W_K] = "model.layers.*.self_attn.k_proj|model.layers.*.linear_attn.k_proj",
              [W_V] = "model.layers.*.self_attn.v_proj|model.layers.*.linear_attn.v_proj",
              [W_O] = "model.layers.*.self_attn.o_proj|model.layers.*.linear_attn.o_proj",
              NAMES_QK_NORM,
              NAMES_GATED_MLP,
              NAMES_DELTA_CONVS("model.layers.*.linear_attn."),
              [W_MIX_Z] = "model.layers.*.linear_attn.g_proj",
              [W_MIX_BETA] = "model.layers.*.linear_attn.b_proj",
              [W_MIX_DECAY] = "model.layers.*.linear_attn.a_proj",
              [W_MIX_RATE] = "model.layers.*.linear_attn.A_log",
              [W_MIX_DT] = "model.layers.*.linear_attn.dt_bias",
              [W_MIX_NORM] = "model.layers.*.linear_attn.o_norm.weight"},
    .configure = configure,
};
