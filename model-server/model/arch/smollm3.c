/* SmolLM 3: Llama without RoPE in every fourth layer (arXiv 2501.18795). */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 2000000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_windows(c, s, 0, config_upper_layers);
    config_no_rope_layers(c, s, 4);
}

const struct arch arch_smollm3 = {
    .types = (const char *const[]){"smollm3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
