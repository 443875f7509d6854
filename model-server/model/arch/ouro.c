/* Ouro (ByteDance, arXiv 2510.25741): Llama with norms before and after each sublayer, whose layers
 * run several times, with separate keys and values for each pass; the final norm follows each pass.
 * */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    s->norms = NORM_AROUND;
    config_windows(c, s, 4096, config_upper_layers);
    /* a token would leave after as many turns as its gates say */
    if (config_num_or(c, "early_exit_threshold", 1) < 1)
        config_fail(c, "`early_exit_threshold`: only 1 is supported");
    if (config_num_or(c, "early_exit_step", -1) >= 0)
        config_fail(c, "`early_exit_step` is not supported");
    config_turns(c, s, "total_ut_steps", 4, true);
}

const struct arch arch_ouro = {
    .types = (const char *const[]){"ouro", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_POST_ATTN_NORM] = "model.layers.*.input_layernorm_2",
              [W_POST_MLP_NORM] = "model.layers.*.post_attention_layernorm_2"},
    .configure = configure,
};
