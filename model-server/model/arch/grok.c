/* Grok-1 (xAI), in the format of its port to Hugging Face: norms before and after the sublayers,
 * soft-capped attention scores, GELU experts weighted by their softmax over all experts.
 * https://huggingface.co/hpcai-tech/grok-1 */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 8192,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 10000,
                                             .kv_heads = 8,
                                             .tied = true});
    s->act = config_act(c, "hidden_act", "gelu");
    s->norms = NORM_AROUND;
    s->embed_scale = (float)config_num_or(c, "embedding_multiplier_scale", 78.38367176906169);
    s->logit_scale = (float)config_num_or(c, "output_multiplier_scale", 0.5773502691896257);
    s->attn_softcap = (float)config_softcap(c, "max_attn_value", 30);
    const float scale = (float)config_num_or(c, "attn_output_multiplier", 0.08838834764831845);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = scale;
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = false;
    config_moe_layers(s);
}

#define ATTN "model.layers.*.attn."
const struct arch arch_grok = {
    .types = (const char *const[]){"grok-1", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.pre_attn_norm",
              [W_POST_ATTN_NORM] = "model.layers.*.post_attn_norm",
              [W_MLP_NORM] = "model.layers.*.pre_moe_norm",
              [W_POST_MLP_NORM] = "model.layers.*.post_moe_norm",
              [W_Q] = ATTN "q_proj",
              [W_K] = ATTN "k_proj",
              [W_V] = ATTN "v_proj",
              [W_O] = ATTN "o_proj",
              [W_ROUTER] = "model.layers.*.moe_block.gate",
              [W_MOE_GATE] = "model.layers.*.moe_block.experts.*.linear",
              [W_MOE_UP] = "model.layers.*.moe_block.experts.*.linear_v",
              [W_MOE_DOWN] = "model.layers.*.moe_block.experts.*.linear_1"},
    .other_weight = ".scale",
    .configure = configure,
};
