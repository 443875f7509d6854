/* Cohere Command R7B, Command A: Command R with windows; only layers with a window rotate. */
#include "common/json.h"
#include "model-server/model/arch.h"

static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    const bool old = !json_get(c->root, "sliding_window_pattern");
    return config_all_but_nth(c, old ? "_sliding_window_pattern" : "sliding_window_pattern", 4,
                              layer);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 8192, .rope_theta = 10000, .tied = true});
    config_layer_norm(c, s, "layer_norm_eps", false);
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "use_parallel_block", true);
    config_only(c, "use_gated_activation", true);
    config_only(c, "use_qk_norm", false);
    s->rope[0].interleaved = true;
    s->parallel = s->shared_norm = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_scale = (float)config_num_or(c, "logit_scale", 0.0625);
    config_windows(c, s, 4096, all_but_every_nth);
    config_rotate_windows(s);
}

const struct arch arch_cohere2 = {
    .types = (const char *const[]){"cohere2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_GATED_MLP},
    .configure = configure,
};
