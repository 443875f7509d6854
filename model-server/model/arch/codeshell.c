/* CodeShell (WisdomShell, arXiv 2403.15747): StarCoder 2 with GPT-BigCode's tensor names and q, k
 * and v in one matrix. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_only_word(c, "position_embedding_type", "rope");
    config_only(c, "scale_attn_weights", true);
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 8192, .rope_theta = 10000, .ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->act = config_act(c, "activation_function", "gelu_pytorch_tanh");
    s->qkv = QKV_STACKED;
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    if (!config_bool_or(c, "group_query_attention", true))
        s->n_kv_heads = s->n_heads;
}

static const struct config_key keys[] = {{"hidden_size", "n_embd"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"num_key_value_heads", "num_query_groups"},
                                         {"intermediate_size", "n_inner", true},
                                         {"max_position_embeddings", "n_positions"},
                                         {NULL, NULL}};

const struct arch arch_codeshell = {
    .types = (const char *const[]){"codeshell", "kclgpt", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {NAMES_GPT2},
    .configure = configure,
};
