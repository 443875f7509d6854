/* Maincoder (Maincode): Llama with interleaved RoPE, and QK norm after it. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 1000000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->rope[0].interleaved = true;
    if (config_bool_or(c, "use_qk_norm", true)) {
        s->qk_norm = QK_NORM_HEAD;
        s->qk_norm_last = true;
    }
}

static const struct config_key keys[] = {{"intermediate_size", "intermediate_size_mlp"},
                                         {NULL, NULL}};

const struct arch arch_maincoder = {
    .types = (const char *const[]){"maincoder", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O,
              NAMES_QK_NORM, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE] = "model.layers.*.feed_forward.gate_proj",
              [W_UP] = "model.layers.*.feed_forward.up_proj",
              [W_DOWN] = "model.layers.*.feed_forward.down_proj"},
    .configure = configure,
};
