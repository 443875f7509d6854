/* GPT-BigCode (SantaCoder, StarCoder, arXiv 2305.06161): GPT-2 with one key-value head and matrices
 * stored [out, in]. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool one = config_bool_or(c, "multi_query", true);
    const bool scaled = config_bool_or(c, "scale_attn_weights", true);
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 1024, .ffn_times = 4, .tied = true});
    s->n_kv_heads = one ? 1 : s->n_heads;
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->qkv = one ? QKV_STACKED : QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation_function", "gelu_pytorch_tanh");
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = true;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = scaled ? spec_head_scale(s) : 1;
}

const struct arch arch_gpt_bigcode = {
    .types = (const char *const[]){"gpt_bigcode", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {[W_EMBED] = "transformer.wte",
              [W_POSITIONS] = "transformer.wpe",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_QKV] = "transformer.h.*.attn.c_attn",
              [W_O] = "transformer.h.*.attn.c_proj",
              [W_MLP_NORM] = "transformer.h.*.ln_2",
              [W_UP] = "transformer.h.*.mlp.c_fc",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
