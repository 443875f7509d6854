/* Cohere Command R: parallel attention and MLP after one norm without bias, interleaved RoPE,
 * scaled logits. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 8192, .rope_theta = 10000, .tied = true});
    config_layer_norm(c, s, "layer_norm_eps", false);
    if (config_bool_or(c, "use_qk_norm", false)) /* Command R+ */
        s->qk_norm = QK_NORM_BY_HEAD;
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "use_parallel_block", true);
    config_only(c, "use_gated_activation", true);
    s->rope[0].interleaved = true;
    s->parallel = s->shared_norm = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_scale = (float)config_num_or(c, "logit_scale", 0.0625);
}

const struct arch arch_cohere = {
    .types = (const char *const[]){"cohere", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_GATED_MLP},
    .configure = configure,
};
