/* The original Jais (Inception, G42, arXiv 2308.16149) and BTLM (Cerebras, arXiv 2309.11568): GPT-2
 * with ALiBi, a gated MLP, and muP multipliers of embeddings, scores and logits (arXiv 2203.03466).
 * */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* A factor under its key, or under the one that the first files have. */
static double factor(struct config *c, const char *key, const char *old, double def)
{
    return config_num_or(c, json_get(c->root, old) ? old : key, def);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    static const char *const unlike[] = {"add_cross_attention", "scale_attn_by_inverse_layer_idx",
                                         "reorder_and_upcast_attn"};
    for (size_t i = 0; i < sizeof(unlike) / sizeof(unlike[0]); i++)
        config_only(c, unlike[i], false);
    config_only_word(c, "position_embedding_type", "alibi");
    config_only_word(c, "activation_function", "swiglu");
    if (json_get(c->root, "alibi_scaling"))
        config_fail(c, "`alibi_scaling` is not supported");
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 1024, .ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->qkv = QKV_STACKED;
    s->transposed = true;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->alibi = (struct alibi_spec){ALIBI_PAPER, 8};
    s->embed_scale = (float)factor(c, "mup_embeddings_scale", "embeddings_scale", 1);
    s->logit_scale = json_get(c->root, "width_scale")
                         ? (float)config_num_or(c, "width_scale", 1)
                         : (float)(config_num_or(c, "mup_output_alpha", 1) *
                                   config_num_or(c, "mup_width_scale", 1));
    const char *old = json_get(c->root, "scale_qk_dot_by_d") ? "scale_qk_dot_by_d" : NULL;
    const bool by_dim = config_bool_or(c, old ? old : "mup_scale_qk_dot_by_d", false);
    for (uint32_t i = 0; by_dim && i < s->n_layers; i++)
        s->layers[i].attn_scale = 1 / (float)s->head_dim;
}

const struct arch arch_jais = {
    .types = (const char *const[]){"jais", "btlm", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {NAMES_GPT2, [W_GATE] = "transformer.h.*.mlp.c_fc2"},
    .configure = configure,
};
