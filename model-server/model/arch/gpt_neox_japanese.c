/* GPT-NeoX Japanese (ABEJA): GPT-NeoX's interleaved q, k and v without biases; only the output
 * projection of the last layer's attention has one. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 2048,
                       .tied = true,
                       .ffn_times = config_u32_or(c, "intermediate_multiple_size", 4, 1, 64)});
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->rope[0].dim = config_rotary_dim(c, s->head_dim, config_num_or(c, "rotary_pct", 1));
    config_rope(c, s, config_num_or(c, "rotary_emb_base", 10000));
    s->act = config_act(c, "hidden_act", "gelu");
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->bias.last_o = true;
}

static const struct config_key keys[] = {
    {"num_key_value_heads", NULL}, {"intermediate_size", NULL}, {"head_dim", NULL}, {NULL, NULL}};

#define LAYER "gpt_neox_japanese.layers.*."
const struct arch arch_gpt_neox_japanese = {
    .types = (const char *const[]){"gpt_neox_japanese", NULL},
    .prefix = "gpt_neox_japanese.",
    .keys = keys,
    .names = {[W_EMBED] = "gpt_neox_japanese.embed_in",
              [W_FINAL_NORM] = "gpt_neox_japanese.final_layer_norm",
              [W_HEAD] = "embed_out",
              [W_ATTN_NORM] = LAYER "input_layernorm",
              [W_QKV] = LAYER "attention.query_key_value",
              [W_O] = LAYER "attention.dense",
              [W_O_BIAS] = LAYER "attention.dense_bias",
              [W_MLP_NORM] = LAYER "post_attention_layernorm",
              [W_UP] = LAYER "mlp.dense_h_to_4h",
              [W_DOWN] = LAYER "mlp.dense_4h_to_h"},
    .configure = configure,
};
