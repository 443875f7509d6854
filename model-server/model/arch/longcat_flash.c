/* LongCat-Flash (arXiv 2509.01322): layers with two blocks of latent attention and dense MLP.
 * Experts in parallel to the first MLP, some of them identities without weights, are added after
 * the second one. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>

static void latent(struct config *c, struct decoder_spec *s)
{
    struct mla_spec *m = &s->mla;
    const double m_all = config_rope_mscale(c);
    config_latent(c, s, 1536, 128);
    m->kv_scale = sqrtf((float)s->hidden / (float)m->kv_rank);
    s->rope[0].interleaved = true;
    config_rope(c, s, 10000000);
    const double q_scale = sqrt((double)s->hidden / m->q_rank);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].mixer = MIXER_MLA;
        s->layers[i].attn_scale = spec_head_scale(s) * (float)(q_scale * m_all * m_all);
    }
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->n_experts = config_u32_or(c, "n_routed_experts", 512, 1, 4096);
    m->n_zero = config_u32_or(c, "zero_expert_num", 256, 0, 4096);
    m->top_k = config_u32_or(c, "moe_topk", 12, 1, 4096);
    m->ffn = config_u32_or(c, "expert_ffn_hidden_size", 2048, 1, 1u << 22);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 6);
    m->score = MOE_SOFTMAX;
    m->select_bias = m->shortcut = true;
    for (uint32_t i = 0; i < s->n_layers; i += 2)
        s->layers[i].moe = true;
    config_check_moe(c, s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5, .layers = 28, .ffn = 12288});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    config_only(c, "router_bias", false);
    config_only(c, "norm_topk_prob", false);
    config_only(c, "mla_scale_q_lora", true);
    config_only(c, "mla_scale_kv_lora", true);
    config_only_word(c, "attention_method", "MLA");
    config_only_word(c, "zero_expert_type", "identity");
    config_only(c, "mla_use_output_gate", false);
    if (json_get(c->root, "linear_method"))
        config_fail(c, "`linear_method`: layers of linear attention are not supported");
    if (json_get(c->root, "ngram_vocab_size_ratio"))
        config_fail(c, "`ngram_vocab_size_ratio`: embeddings of n-grams are not supported");
    if (s->n_layers > SPEC_MAX_LAYERS / 2) {
        config_fail(c, "`num_layers` must be at most %d", SPEC_MAX_LAYERS / 2);
        return;
    }
    s->n_layers *= 2;
    s->paired = true;
    latent(c, s);
    experts(c, s);
}

#define NAMES_BLOCK(i)                                                                             \
    [W_ATTN_NORM] = "model.layers.*.input_layernorm." i,                                           \
    [W_Q_A] = "model.layers.*.self_attn." i ".q_a_proj",                                           \
    [W_Q_A_NORM] = "model.layers.*.self_attn." i ".q_a_layernorm",                                 \
    [W_Q_B] = "model.layers.*.self_attn." i ".q_b_proj",                                           \
    [W_KV_A] = "model.layers.*.self_attn." i ".kv_a_proj_with_mqa",                                \
    [W_KV_A_NORM] = "model.layers.*.self_attn." i ".kv_a_layernorm",                               \
    [W_KV_B] = "model.layers.*.self_attn." i ".kv_b_proj",                                         \
    [W_O] = "model.layers.*.self_attn." i ".o_proj",                                               \
    [W_MLP_NORM] = "model.layers.*.post_attention_layernorm." i,                                   \
    [W_GATE] = "model.layers.*.mlps." i ".gate_proj",                                              \
    [W_UP] = "model.layers.*.mlps." i ".up_proj", [W_DOWN] = "model.layers.*.mlps." i ".down_proj"

static const struct arch second = {.prefix = "model.", .names = {NAMES_BLOCK("1")}};

const struct arch arch_longcat_flash = {
    .types = (const char *const[]){"longcat_flash", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              NAMES_BLOCK("0"),
              [W_ROUTER] = "model.layers.*.mlp.router.classifier",
              [W_SELECT_BIAS] = "model.layers.*.mlp.router.e_score_correction_bias",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] =
                  "model.layers.*.mlp.experts.down_proj|model.layers.*.mlp.experts.*.down_proj"},
    .keys = (const struct config_key[]){{"num_hidden_layers", "num_layers", false},
                                        {"intermediate_size", "ffn_hidden_size", false},
                                        {NULL, NULL, false}},
    .second = &second,
    .configure = configure,
};
