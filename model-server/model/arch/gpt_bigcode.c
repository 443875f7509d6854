/* GPT-BigCode (SantaCoder, StarCoder, arXiv 2305.06161): GPT-2 with multi-query attention and
 * matrices stored [out, in]. */
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
    .names = {NAMES_GPT2},
    .configure = configure,
};
