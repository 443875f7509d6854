/* Maple (Deepgrove): Qwen 3's experts with clamped gate and up projections; RoPE on half of each
 * head in layers with a sliding window, none in the others. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 32768,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .rotary = 0.5,
                                             .ffn = 512}); /* of no layer */
    s->act = config_act_limit(c, "swiglu_limit", ACT_SILU_CLAMPED);
    s->bias.o = config_bool_or(c, "use_bias", false);
    s->qk_norm = config_bool_or(c, "use_qk_norm", true) ? QK_NORM_HEAD : QK_NORM_NONE;
    config_moe(c, s, 256, 8);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    config_only(c, "moe_router_enable_expert_bias", false);
    if (config_u32_or(c, "num_shared_experts", 0, 0, 1u << 16))
        config_fail(c, "`num_shared_experts` is not supported");
    config_only_word(c, "hidden_act", "silu");
    if (!json_get(c->root, "layer_types"))
        config_fail(c, "`layer_types` is missing");
    config_windows(c, s, 4096, config_no_layer);
    if (config_bool_or(c, "nope_on_global_attention", true))
        config_rotate_windows(s);
    config_moe_layers(s);
}

const struct arch arch_maple = {
    .types = (const char *const[]){"maple", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_EXPERTS,
              [W_EMBED] = "model.word_embeddings|model.embed_tokens", [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm"},
    .configure = configure,
};
