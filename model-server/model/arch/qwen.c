/* The original Qwen (arXiv 2309.16609): Llama with GPT-2's tensor names, and q, k and v in one
 * matrix with biases. */
#include "model-server/model/arch.h"

static const struct config_key keys[] = {
    {"rms_norm_eps", "layer_norm_epsilon"}, {"head_dim", "kv_channels"}, {NULL, NULL}};

/* Beyond the length of the training its files scale the rotation by the prompt's length, and q by
 * the position. Up to that length both are 1, and further tokens are not served. */
static void training_length(struct config *c, struct decoder_spec *s)
{
    const bool grows = config_bool_or(c, "use_dynamic_ntk", false);
    const bool scales = config_bool_or(c, "use_logn_attn", false);
    const uint32_t trained = config_u32_or(c, "seq_length", s->max_positions, 1, 1u << 30);
    if ((grows || scales) && trained < s->max_positions)
        s->max_positions = trained;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6});
    s->n_kv_heads = s->n_heads;
    s->rope[0].dim = config_rotary_dim(c, s->head_dim, config_num_or(c, "rotary_pct", 1));
    config_rope(c, s, config_num_or(c, "rotary_emb_base", 10000));
    s->ffn /= 2; /* the file has the widths of gate and up together */
    if (s->ffn == 0)
        config_fail(c, "`intermediate_size` must be above 1");
    s->act = ACT_SILU;
    s->qkv = QKV_STACKED;
    s->bias.qkv = true;
    s->bias.o = s->bias.mlp = !config_bool_or(c, "no_bias", true);
    config_only(c, "scale_attn_weights", true);
    training_length(c, s);
}

const struct arch arch_qwen = {
    .types = (const char *const[]){"qwen", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_QKV] = "transformer.h.*.attn.c_attn",
              [W_O] = "transformer.h.*.attn.c_proj",
              [W_MLP_NORM] = "transformer.h.*.ln_2",
              [W_UP] = "transformer.h.*.mlp.w1",
              [W_GATE] = "transformer.h.*.mlp.w2",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
