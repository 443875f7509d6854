/* OpenAI Privacy Filter: gpt-oss with bidirectional sliding windows, which classifies each token.
 * Interleaved RoPE; gate and up of an expert are concatenated, not interleaved. */
#include "model-server/model/arch.h"

static bool all(struct config *c, uint32_t layer) { return (void)c, (void)layer, true; }

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 150000});
    s->act = config_act_limit(c, "swiglu_limit", ACT_SWIGLU_CLAMPED);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", true);
    s->sinks = SINKS_ALL;
    s->rope[0].interleaved = true;
    config_moe(c, s, 128, 4);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true; /* as gpt-oss; what divides the weights multiplies their sum */
    s->moe.bias = true;
    config_windows(c, s, 128, all);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].window++; /* it counts the tokens to one side */
    config_moe_layers(s);
    s->both_ways = s->no_head = true;
}

const struct arch arch_openai_privacy_filter = {
    .types = (const char *const[]){"openai_privacy_filter", NULL},
    .prefix = "model.",
    .names = {NAMES_GPT_OSS_EXPERTS},
    .configure = configure,
};
