/* InternLM 2 and 2.5 (arXiv 2403.17297): Llama with q, k and v in one matrix, grouped by key-value
 * head. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->qkv = QKV_GROUPED;
    s->bias.qkv = s->bias.o = config_bool_or(c, "bias", true);
}

const struct arch arch_internlm2 = {
    .types = (const char *const[]){"internlm2", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.tok_embeddings",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "output",
              [W_ATTN_NORM] = "model.layers.*.attention_norm",
              [W_QKV] = "model.layers.*.attention.wqkv",
              [W_O] = "model.layers.*.attention.wo",
              [W_MLP_NORM] = "model.layers.*.ffn_norm",
              [W_GATE] = "model.layers.*.feed_forward.w1",
              [W_UP] = "model.layers.*.feed_forward.w3",
              [W_DOWN] = "model.layers.*.feed_forward.w2"},
    .configure = configure,
};
