/* EXAONE 3, 3.5 and Deep (arXiv 2408.03541): Llama with GPT-2's tensor names; transformers 5 writes
 * Llama's. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t layers = config_layers(c, config_either(c, "num_layers", "num_hidden_layers"));
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 10000, .layers = layers});
    s->norm.eps =
        (float)config_num_or(c, config_either(c, "layer_norm_epsilon", "rms_norm_eps"), 1e-5);
    s->act = config_act(c, config_either(c, "activation_function", "hidden_act"), "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

#define OLD "transformer.h.*."
#define NEW "|model.layers.*."
const struct arch arch_exaone = {
    .types = (const char *const[]){"exaone", NULL},
    .prefix = "transformer.",
    .names = {[W_EMBED] = "transformer.wte|model.embed_tokens",
              [W_FINAL_NORM] = "transformer.ln_f|model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = OLD "ln_1" NEW "input_layernorm",
              [W_Q] = OLD "attn.attention.q_proj" NEW "self_attn.q_proj",
              [W_K] = OLD "attn.attention.k_proj" NEW "self_attn.k_proj",
              [W_V] = OLD "attn.attention.v_proj" NEW "self_attn.v_proj",
              [W_O] = OLD "attn.attention.out_proj" NEW "self_attn.o_proj",
              [W_MLP_NORM] = OLD "ln_2" NEW "post_attention_layernorm",
              [W_GATE] = OLD "mlp.c_fc_0" NEW "mlp.gate_proj",
              [W_UP] = OLD "mlp.c_fc_1" NEW "mlp.up_proj",
              [W_DOWN] = OLD "mlp.c_proj" NEW "mlp.down_proj"},
    .configure = configure,
};
