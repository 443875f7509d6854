/* NeoBERT (arXiv 2502.19587): a pre-norm encoder with RMS norms, interleaved RoPE, q, k and v
 * interleaved per head in one matrix, and a gated MLP. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

enum { MULTIPLE = 8 };

/* The file says the width of an MLP without a gate. A gated one of as many weights has two thirds
 * of it, rounded up to a multiple of 8. */
static uint32_t gated_width(uint32_t plain)
{
    return (2 * plain / 3 + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *act = config_str_or(c, "hidden_act", "SwiGLU");
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 1024, .norm_eps = 1e-6, .rope_theta = 10000});
    s->norm.eps = (float)config_num_or(c, "norm_eps", 1e-6);
    s->ffn = gated_width(s->ffn);
    config_only(c, "rope", true); /* learned positions else */
    config_only(c, "rms_norm", true);
    config_only(c, "ngpt", false);
    if (strcasecmp(act, "swiglu") != 0)
        config_fail(c, "`hidden_act`: only SwiGLU is supported");
    s->rope[0].interleaved = s->both_ways = s->no_head = true;
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_GATED_PACKED;
    s->act = ACT_SILU;
}

static const struct config_key keys[] = {{"max_position_embeddings", "max_length"}, {NULL, NULL}};

#define LAYER "model.transformer_encoder.*."
const struct arch arch_neobert = {
    .types = (const char *const[]){"neobert", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {[W_EMBED] = "model.encoder",
              [W_FINAL_NORM] = "model.layer_norm",
              [W_ATTN_NORM] = LAYER "attention_norm",
              [W_QKV] = LAYER "qkv",
              [W_O] = LAYER "wo",
              [W_MLP_NORM] = LAYER "ffn_norm",
              [W_GATE_UP] = LAYER "ffn.w12",
              [W_DOWN] = LAYER "ffn.w3"},
    .configure = configure,
};
