/* ModernBERT (arXiv 2412.13663): a pre-norm encoder with RoPE and a gated MLP; most layers have
 * bidirectional sliding-window attention. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static bool local(struct config *c, uint32_t layer)
{
    const double n = config_num_or(c, "global_attn_every_n_layers", 3);
    return n >= 1 && layer % (uint32_t)n != 0;
}

/* Local layers see half of local_attention to each side. */
static void windows(struct config *c, struct decoder_spec *s)
{
    const uint32_t half = config_u32_or(c, "local_attention", 128, 1, 1u << 30) / 2;
    config_windows(c, s, half + 1, local);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].window = s->layers[i].window ? half + 1 : 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5});
    config_layer_norm(c, s, "norm_eps", config_bool_or(c, "norm_bias", false));
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    s->act = config_act(c, "hidden_activation", "gelu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_masked_head(c, s, config_act(c, "classifier_activation", "gelu"));
    s->head_dense_bias = config_bool_or(c, "classifier_bias", false);
    s->bias.head = config_bool_or(c, "decoder_bias", true);
    s->embed_norm = s->no_first_norm = s->both_ways = s->no_head = true;
    s->rope[0].dim = s->head_dim;
    config_rope(c, s, config_num_or(c, "global_rope_theta", 160000));
    windows(c, s);
    config_window_rope(c, s, config_num_or(c, "local_rope_theta", 10000));
}

const struct arch arch_modernbert = {
    .types = (const char *const[]){"modernbert", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embeddings.tok_embeddings",
              [W_EMBED_NORM] = "model.embeddings.norm",
              [W_FINAL_NORM] = "model.final_norm",
              [W_ATTN_NORM] = "model.layers.*.attn_norm",
              [W_QKV] = "model.layers.*.attn.Wqkv",
              [W_O] = "model.layers.*.attn.Wo",
              [W_MLP_NORM] = "model.layers.*.mlp_norm",
              [W_GATE_UP] = "model.layers.*.mlp.Wi",
              [W_DOWN] = "model.layers.*.mlp.Wo",
              [W_HEAD_PROJECT] = "head.dense",
              [W_HEAD_NORM] = "head.norm",
              [W_HEAD] = "decoder",
              [W_HEAD_BIAS] = "decoder.bias"},
    .configure = configure,
};
