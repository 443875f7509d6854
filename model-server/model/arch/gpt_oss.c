/* gpt-oss: mixture of experts, sliding-window attention in every other layer, a learned attention
 * sink per head. arXiv 2508.10925 */
#include "model-server/model/arch.h"

static bool even(struct config *c, uint32_t layer) { return (void)c, layer % 2 == 0; }

/* The factor of the activation is the backend's. */
static void activation(struct config *c, struct decoder_spec *s)
{
    config_act(c, "hidden_act", "silu");
    s->act = config_act_limit(c, "swiglu_limit", ACT_SWIGLU_CLAMPED);
    if (config_num_or(c, "swiglu_alpha", 1.702) != 1.702)
        config_fail(c, "`swiglu_alpha`: only 1.702 is supported");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_absent(c, "{\"num_key_value_heads\":8}");
    config_absent_rope(
        c, "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":150000,\"factor\":32,"
           "\"beta_fast\":32,\"beta_slow\":1,\"truncate\":false,"
           "\"original_max_position_embeddings\":4096}}");
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 150000});
    activation(c, s);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", true);
    s->sinks = SINKS_ALL;
    config_moe(c, s, 128, 4);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true; /* softmax over the chosen is that of all, scaled to sum to 1 */
    s->moe.bias = true;
    s->moe.layout = EXPERTS_INTERLEAVED;
    config_windows(c, s, 128, even);
    config_moe_layers(s);
}

const struct arch arch_gpt_oss = {
    .types = (const char *const[]){"gpt_oss", NULL},
    .prefix = "model.",
    .names = {NAMES_GPT_OSS_EXPERTS},
    .configure = configure,
};
