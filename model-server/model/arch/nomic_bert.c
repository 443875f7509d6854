/* Nomic Embed 1 and 1.5 (arXiv 2402.01613): BERT with RoPE, a gated MLP and few biases; Nomic Embed
 * 2 (2502.07972): ungated MLPs, biases, and experts in every other layer. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* What the repository's own code allows, and its published models do not have. */
static void refuse(struct config *c)
{
    static const char *const off[] = {"prenorm",
                                      "use_rms_norm",
                                      "parallel_block",
                                      "causal",
                                      "moe_normalize_expert_weights",
                                      "scale_attn_by_inverse_layer_idx",
                                      "expert_choice",
                                      "expert_choice_router",
                                      "rotary_emb_interleaved"};
    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
        config_only(c, off[i], false);
    if (config_num_or(c, "num_shared_experts", 0) > 0)
        config_fail(c, "`num_shared_experts` is not supported");
    if (config_num_or(c, "rotary_emb_fraction", 1) != 1)
        config_fail(c, "`rotary_emb_fraction`: only 1 is supported");
    if (json_get(c->root, "rotary_emb_scale_base"))
        config_fail(c, "`rotary_emb_scale_base` is not supported");
}

/* swiglu is a gate of silu, geglu one of gelu; other words are those of MLPs without gates. */
static void mlp(struct config *c, struct decoder_spec *s)
{
    const char *word = config_str_or(c, "activation_function", "swiglu");
    const bool swiglu = strcmp(word, "swiglu") == 0, gated = swiglu || strcmp(word, "geglu") == 0;
    const bool first = config_bool_or(c, "mlp_fc1_bias", false);
    s->mlp = gated ? MLP_GATED : MLP_PLAIN;
    s->act = swiglu ? ACT_SILU : gated ? ACT_GELU : config_act(c, "activation_function", "gelu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "qkv_proj_bias", false);
    s->bias.mlp = first;
    if (config_bool_or(c, "mlp_fc2_bias", false) != first || (gated && first))
        config_fail(c, "`mlp_fc1_bias`, `mlp_fc2_bias`: both or none, and none with gates");
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const uint32_t every = config_u32_or(c, "moe_every_n_layers", 0, 0, SPEC_MAX_LAYERS);
    for (uint32_t i = 0; every && i < s->n_layers; i++)
        s->layers[i].moe = i % every == 1;
    if (!every) {
        if (config_num_or(c, "num_experts", 0) > 0)
            config_fail(c, "`moe_every_n_layers` is missing");
        return;
    }
    s->moe = (struct moe_spec){.n_experts = config_u32_or(c, "num_experts", 8, 1, 4096),
                               .top_k = config_u32_or(c, "moe_top_k", 1, 1, 4096),
                               .ffn = s->ffn,
                               .scale = 1,
                               .score = MOE_SOFTMAX,
                               .plain = true,
                               .sum_bias = config_bool_or(c, "use_expert_bias", true),
                               .layout = EXPERTS_STACKED};
    if (s->mlp != MLP_PLAIN)
        config_fail(c, "`activation_function`: experts with gates are not supported");
    config_check_moe(c, s);
}

/* Texts longer than the training's stretch the base as dynamic NTK does. */
static void rope(struct config *c, struct decoder_spec *s)
{
    const double factor = config_num_or(c, "rotary_scaling_factor", 1);
    struct rope_spec *r = &s->rope[0];
    *r = (struct rope_spec){.kind = factor == 1 ? ROPE_DEFAULT : ROPE_DYNAMIC,
                            .dim = s->head_dim,
                            .theta = config_num_or(c, "rotary_emb_base", 1000),
                            .attention_factor = 1,
                            .factor = factor};
    r->original = config_u32_or(c, "max_trained_positions", 2048, 1, 1u << 24);
    if (!(r->theta > 1))
        config_fail(c, "`rotary_emb_base` must be above 1");
    if (!(factor >= 1) || r->dim <= 2 || r->dim % 2)
        config_fail(c, "`rotary_scaling_factor` must be 1 or more, heads even and above 2");
}

/* The keys of the repository. */
static void own_keys(struct config *c, struct decoder_spec *s)
{
    refuse(c);
    s->hidden = config_dim(c, "n_embd");
    s->n_layers = config_layers(c, "n_layer");
    s->n_heads = s->n_kv_heads = config_heads(c, "n_head");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = config_u32_or(c, "n_inner", 4 * s->hidden, 1, 1u << 24);
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "n_positions", 2048, 1, 1u << 24);
    mlp(c, s);
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
    rope(c, s);
    config_sums(s, config_num_or(c, "layer_norm_epsilon", 1e-12));
    experts(c, s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    if (json_get(c->root, "n_embd")) {
        own_keys(c, s);
    } else {
        config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .rope_theta = 1000});
        s->act = config_act(c, "hidden_act", "silu");
        s->mlp = MLP_GATED;
        config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    }
    config_type_rows(c, s);
    s->qkv = QKV_STACKED;
}

const struct arch arch_nomic_bert = {
    .types = (const char *const[]){"nomic_bert", NULL},
    .prefix = "nomic_bert.",
    .names = {[W_EMBED] = "nomic_bert.embeddings.word_embeddings",
              [W_TOKEN_TYPES] = "nomic_bert.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "nomic_bert.emb_ln",
              [W_QKV] = "nomic_bert.encoder.layers.*.attn.Wqkv",
              [W_O] = "nomic_bert.encoder.layers.*.attn.out_proj",
              [W_POST_ATTN_NORM] = "nomic_bert.encoder.layers.*.norm1",
              [W_GATE] = "nomic_bert.encoder.layers.*.mlp.fc12",
              /* the first one without gates */
              [W_UP] = "nomic_bert.encoder.layers.*.mlp.fc1|nomic_bert.encoder.layers.*.mlp.fc11",
              [W_ROUTER] = "nomic_bert.encoder.layers.*.mlp.router.layer",
              /* the second one in GGUF files */
              [W_MOE_UP] = "nomic_bert.encoder.layers.*.mlp.experts.mlp.w1|"
                           "nomic_bert.encoder.layers.*.mlp.experts.*.w1",
              [W_MOE_DOWN] = "nomic_bert.encoder.layers.*.mlp.experts.mlp.w2|"
                             "nomic_bert.encoder.layers.*.mlp.experts.*.w2",
              [W_MOE_BIAS] = "nomic_bert.encoder.layers.*.mlp.experts.bias",
              [W_DOWN] = "nomic_bert.encoder.layers.*.mlp.fc2",
              [W_POST_MLP_NORM] = "nomic_bert.encoder.layers.*.norm2"},
    .configure = configure,
};
