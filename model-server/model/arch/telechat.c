/* TeleChat 1 and 2 (China Telecom, arXiv 2401.03804, 2507.18013): Llama with k and v interleaved
 * per head in one matrix, and biases only in the output projections. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 10000});
    s->kv_interleaved = true;
    s->bias.o = s->bias.down = true;
    config_only(c, "apply_residual_connection_post_layernorm", false);
    config_only(c, "embed_layernorm", false);
    /* a longer training has another base, which depends on the length as well */
    const double base = config_num_or(c, "base_seqlen", 8192);
    if (config_num_or(c, "training_seqlen", base) != base)
        config_fail(c, "`training_seqlen` must be `base_seqlen`");
}

static const struct config_key keys[] = {{"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"num_key_value_heads", "num_key_value_heads", true},
                                         {"intermediate_size", "ffn_hidden_size"},
                                         {"max_position_embeddings", "seq_length"},
                                         {"rms_norm_eps", "layer_norm_epsilon"},
                                         {NULL, NULL}};

#define LAYER "transformer.h.*."
const struct arch arch_telechat = {
    .types = (const char *const[]){"telechat", "telechat2", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.word_embeddings",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = LAYER "input_layernorm",
              [W_Q] = LAYER "self_attention.query",
              [W_K] = LAYER "self_attention.key_value",
              [W_O] = LAYER "self_attention.dense",
              [W_MLP_NORM] = LAYER "post_attention_layernorm",
              [W_GATE] = LAYER "mlp.gate_proj",
              [W_UP] = LAYER "mlp.up_proj",
              [W_DOWN] = LAYER "mlp.down_proj"},
    .configure = configure,
};
