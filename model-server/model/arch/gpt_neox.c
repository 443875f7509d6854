/* GPT-NeoX, Pythia: q, k and v interleaved per head in one matrix, partial RoPE. arXiv 2204.06745
 * */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048});
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->rope[0].dim = config_rotary_dim(c, s->head_dim, config_num_or(c, "rotary_pct", 0.25));
    config_rope(c, s, config_num_or(c, "rotary_emb_base", 10000));
    s->act = config_act(c, "hidden_act", "gelu");
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->parallel = config_bool_or(c, "use_parallel_residual", true);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", true);
    s->bias.mlp = true;
}

const struct arch arch_gpt_neox = {
    .types = (const char *const[]){"gpt_neox", NULL},
    .prefix = "gpt_neox.",
    .names = {[W_EMBED] = "gpt_neox.embed_in",
              [W_FINAL_NORM] = "gpt_neox.final_layer_norm",
              [W_HEAD] = "lm_head|embed_out",
              [W_ATTN_NORM] = "gpt_neox.layers.*.input_layernorm",
              [W_QKV] = "gpt_neox.layers.*.attention.query_key_value",
              [W_O] = "gpt_neox.layers.*.attention.dense",
              [W_MLP_NORM] = "gpt_neox.layers.*.post_attention_layernorm",
              [W_UP] = "gpt_neox.layers.*.mlp.dense_h_to_4h",
              [W_DOWN] = "gpt_neox.layers.*.mlp.dense_4h_to_h"},
    .configure = configure,
};
