/* Qwen 3, dense, also in Keye-VL: an explicit head size, per-head QK norm. Cosmos 3's checkpoints
 * have other names for the attention matrices. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    config_added(c, s);
    config_windows(c, s, 4096, config_upper_layers);
}

#define ATTENTION "model.layers.*.self_attn."
const struct arch arch_qwen3 = {
    .types = (const char *const[]){"qwen3", "qwen3_vl_text", "Keye", "KeyeVL1_5", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_MLP,
              NAMES_COSMOS_ATTENTION, [W_Q_NORM] = ATTENTION "norm_q|" ATTENTION "q_norm",
              [W_K_NORM] = ATTENTION "norm_k|" ATTENTION "k_norm"},
    .configure = configure,
};
