/* ModernBERT's decoder (Ettin, arXiv 2507.11412): modernbert.c with separate q, k and v, causal
 * attention and causal windows, and a dense layer before the head. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static bool local(struct config *c, uint32_t layer)
{
    const double n = config_num_or(c, "global_attn_every_n_layers", 3);
    return n >= 1 && layer % (uint32_t)n != 0;
}

static void head(struct config *c, struct decoder_spec *s)
{
    s->head_dense = true;
    s->head_dense_bias = config_bool_or(c, "classifier_bias", false);
    s->head_act = config_act(c, "classifier_activation", "gelu");
    s->bias.head = config_bool_or(c, "decoder_bias", true);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5, .tied = true});
    config_layer_norm(c, s, "norm_eps", config_bool_or(c, "norm_bias", false));
    s->n_kv_heads = s->n_heads;
    s->mlp = MLP_GATED_PACKED;
    s->act = config_act(c, "hidden_activation", "gelu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->embed_norm = s->no_first_norm = true;
    head(c, s);
    s->rope[0].dim = s->head_dim;
    config_rope(c, s, config_num_or(c, "global_rope_theta", 160000));
    /* half of local_attention, unless sliding_window says it */
    config_windows(c, s, config_u32_or(c, "local_attention", 128, 2, 1u << 30) / 2, local);
    config_window_rope(c, s, config_num_or(c, "local_rope_theta", 10000));
}

const struct arch arch_modernbert_decoder = {
    .types = (const char *const[]){"modernbert-decoder", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embeddings.tok_embeddings",
              [W_EMBED_NORM] = "model.embeddings.norm",
              [W_FINAL_NORM] = "model.final_norm",
              [W_ATTN_NORM] = "model.layers.*.attn_norm",
              [W_Q] = "model.layers.*.attn.q_proj",
              [W_K] = "model.layers.*.attn.k_proj",
              [W_V] = "model.layers.*.attn.v_proj",
              [W_O] = "model.layers.*.attn.Wo",
              [W_MLP_NORM] = "model.layers.*.mlp_norm",
              [W_GATE_UP] = "model.layers.*.mlp.Wi",
              [W_DOWN] = "model.layers.*.mlp.Wo",
              [W_HEAD_PROJECT] = "lm_head.dense",
              [W_HEAD_NORM] = "lm_head.norm",
              [W_HEAD] = "decoder",
              [W_HEAD_BIAS] = "decoder.bias"},
    .configure = configure,
};
