/* Ling and Ring 3: layers of Kimi Delta Attention (arXiv 2510.26692) with a lower bound on the
 * decay, among them layers of latent attention with a per-head output gate; DeepSeek's experts. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Ling 2.5 has the same `model_type`, but lightning attention and so none of these keys. */
static bool is_delta(const struct config *c)
{
    static const char *const keys[] = {"kda_safe_gate", "kda_lower_bound", "no_kda_lora",
                                       "short_conv_kernel_size", "linear_conv_kernel_dim"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_get(c->root, keys[i]))
            return true;
    return false;
}

/* transformers saves the sizes of delta layers under keys of its own, too. */
static void delta(struct config *c, struct decoder_spec *s)
{
    struct recur_spec *r = &s->recur;
    const char *dim = config_either(c, "linear_head_dim", "head_dim");
    const char *conv = config_either(c, "linear_conv_kernel_dim", "short_conv_kernel_size");
    r->heads = r->key_heads = config_u32_or(c, "linear_num_heads", s->n_heads, 1, 1u << 16);
    r->key_dim = r->value_dim = config_u32_or(c, dim, 128, 1, CONFIG_MOST_DIM);
    r->apart = r->by_key = true;
    const bool floored = config_bool_or(c, "kda_safe_gate", true);
    r->decay_floor = floored ? (float)config_num_or(c, "kda_lower_bound", -5) : 0;
    if (floored && !(r->decay_floor < 0))
        config_fail(c, "`kda_lower_bound` must be below 0");
    config_delta_rest(c, s, config_u32_or(c, conv, 4, 2, CONV_MOST));
}

/* The last layer of each group; without `layer_types`. */
static bool not_last_of_group(struct config *c, uint32_t layer)
{
    return (layer + 1) % config_u32_or(c, "layer_group_size", 6, 1, SPEC_MAX_LAYERS) != 0;
}

static void latent(struct config *c, struct decoder_spec *s)
{
    config_latent(c, s, 0, 128);
    config_only(c, "attention_bias", false);
    s->rope[0].interleaved = true;
    config_rope(c, s, 6000000);
    s->attn_gate = ATTN_GATE_BY_HEAD;
    config_mixers(c, s, MIXER_DELTA, not_last_of_group);
    const double m = config_rope_mscale(c);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].attn_scale = spec_head_scale(s) * (float)(m * m);
        if (s->layers[i].mixer == MIXER_ATTENTION)
            s->layers[i].mixer = MIXER_MLA;
    }
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->score = MOE_SIGMOID;
    m->select_bias = m->group_pairs = true;
    config_deepseek_moe(c, s);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 2, 0, SPEC_MAX_LAYERS));
    config_act_caps(c, s, "expert_swiglu_limit_list", "share_expert_swiglu_limit_list");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.head_dim = 64, .max_positions = 262144, .norm_eps = 1e-6});
    if (json_get(c->root, "group_norm_size") && !is_delta(c))
        config_fail(c, "`group_norm_size`: layers of lightning attention (Ling 2.5) are not "
                       "supported");
    if (json_get(c->root, "model_max_length"))
        s->max_positions = config_u32(c, "model_max_length", 1, UINT32_MAX);
    s->act = config_act(c, "hidden_act", "silu");
    delta(c, s);
    latent(c, s);
    experts(c, s);
}

/* The names that transformers has in memory, and those of the files. */
#define LING(of) "model.layers.*.self_attn." of "|model.layers.*.attention." of

const struct arch arch_bailing_hybrid = {
    .types = (const char *const[]){"bailing_hybrid", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens|model.word_embeddings",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              NAMES_LLAMA_MLP,
              NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS,
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias|"
                                "model.layers.*.mlp.gate.expert_bias",
              [W_Q] = LING("q_proj"),
              [W_K] = LING("k_proj"),
              [W_V] = LING("v_proj"),
              [W_O] = "model.layers.*.self_attn.o_proj|model.layers.*.attention.dense",
              [W_ATTN_GATE] = LING("g_proj"),
              [W_Q_A] = LING("q_a_proj"),
              [W_Q_A_NORM] = LING("q_a_layernorm"),
              [W_Q_B] = LING("q_b_proj"),
              [W_KV_A] = LING("kv_a_proj_with_mqa"),
              [W_KV_A_NORM] = LING("kv_a_layernorm"),
              [W_KV_B] = LING("kv_b_proj"),
              NAMES_DELTA_CONVS("model.layers.*.attention."),
              [W_MIX_CONV] = "model.layers.*.self_attn.conv1d",
              [W_MIX_Z] = LING("g_proj"),
              [W_MIX_BETA] = LING("b_proj"),
              [W_MIX_DECAY] =
                  "model.layers.*.self_attn.forget_gate.f_proj|model.layers.*.attention.f_proj",
              [W_MIX_RATE] =
                  "model.layers.*.self_attn.forget_gate.A_log|model.layers.*.attention.A_log",
              [W_MIX_DT] =
                  "model.layers.*.self_attn.forget_gate.dt_bias|model.layers.*.attention.dt_bias",
              [W_MIX_NORM] = LING("o_norm.weight")},
    .configure = configure,
};
