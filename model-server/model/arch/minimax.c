/* MiniMax-Text-01 (arXiv 2501.08313) and M1 (2506.13585): lightning attention (linear, with a fixed
 * decay per head) between layers of softmax attention; experts. Residuals are added to the normed
 * input of each sublayer. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The repositories' files list 0 for layers of linear attention. */
static bool is_linear(struct config *c, uint32_t layer)
{
    const cJSON *j = cJSON_GetArrayItem(json_get(c->root, "attn_type_list"), (int)layer);
    return j ? cJSON_IsNumber(j) && j->valuedouble == 0 : layer % 2 != 0;
}

static float factor(struct config *c, const char *key) { return (float)config_num_or(c, key, 1); }

/* What only MiniMax's own files say; transformers rotates whole heads. */
static void own_keys(struct config *c, struct decoder_spec *s)
{
    config_layer_list(c, s, "attn_type_list");
    s->rope[0].dim = config_u32_or(c, "rotary_dim", s->head_dim, 2, s->head_dim);
    if (s->rope[0].dim % 2)
        config_fail(c, "`rotary_dim` must be even");
    if (!config_bool_or(c, "postnorm", false))
        config_fail(c, "`postnorm`: only true is supported");
    if (config_u32_or(c, "shared_intermediate_size", 0, 0, UINT32_MAX) != 0)
        config_fail(c, "`shared_intermediate_size`: only 0 is supported");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 131072, .norm_eps = 1e-5});
    s->rope[0].dim = s->head_dim;
    if (strcmp(json_str(c->root, "model_type", ""), "minimax") != 0)
        own_keys(c, s);
    config_rope(c, s, 1000000);
    s->act = config_act(c, "hidden_act", "silu");
    if (s->act != ACT_SILU)
        config_fail(c, "`hidden_act`: layers of linear attention are served with silu only");
    s->norms = NORM_STREAM;
    config_mixers(c, s, MIXER_FIXED, is_linear);
    const uint32_t window = config_u32_or(c, "sliding_window", 0, 1, UINT32_MAX);
    s->recur.heads = s->recur.key_heads = s->n_heads;
    s->recur.key_dim = s->recur.value_dim = s->head_dim;
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true;
    config_moe_layers(s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        const bool linear = l->mixer == MIXER_FIXED;
        l->window = linear ? 0 : window;
        l->keep[0] = factor(c, linear ? "linear_attn_alpha_factor" : "full_attn_alpha_factor");
        l->add[0] = factor(c, linear ? "linear_attn_beta_factor" : "full_attn_beta_factor");
        l->keep[1] = factor(c, "mlp_alpha_factor");
        l->add[1] = factor(c, "mlp_beta_factor");
    }
}

static const struct config_key keys[] = {
    {"full_attn_alpha_factor", "layernorm_full_attention_alpha", false},
    {"full_attn_beta_factor", "layernorm_full_attention_beta", false},
    {"linear_attn_alpha_factor", "layernorm_linear_attention_alpha", false},
    {"linear_attn_beta_factor", "layernorm_linear_attention_beta", false},
    {"mlp_alpha_factor", "layernorm_mlp_alpha", false},
    {"mlp_beta_factor", "layernorm_mlp_beta", false},
    {NULL, NULL, false}};

const struct arch arch_minimax = {
    .types = (const char *const[]){"minimax", "minimax_text_01", "minimax_m1", NULL},
    .keys = keys,
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              NAMES_BLOCK_SPARSE_EXPERTS, [W_MIX_IN] = "model.layers.*.self_attn.qkv_proj",
              [W_MIX_Z] = "model.layers.*.self_attn.output_gate",
              [W_MIX_NORM] = "model.layers.*.self_attn.norm.weight",
              /* the second name: in GGUF files */
              [W_MIX_OUT] = "model.layers.*.self_attn.out_proj|model.layers.*.self_attn.o_proj"},
    .configure = configure,
};
