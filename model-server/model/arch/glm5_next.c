/* GLM-5.3: several residual streams mixed by doubly stochastic matrices; layers of Kimi Delta
 * Attention with a lower bound on the decay, among them layers of latent attention without RoPE,
 * with indexers that select pools of tokens; DeepSeek's experts with clamped activations. Most
 * checkpoints are those of the vision model. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Three of four layers are delta layers, unless the file says which. */
static enum mixer_kind mixer_of(struct config *c, const cJSON *word, uint32_t layer)
{
    const char *w = word && cJSON_IsString(word) ? word->valuestring : "";
    if (!word)
        return layer % 4 == 3 ? MIXER_MLA : MIXER_DELTA;
    if (strcmp(w, "linear_attention") == 0)
        return MIXER_DELTA;
    if (strcmp(w, "indexed_attention") != 0 && strcmp(w, "full_attention") != 0)
        config_fail(c, "layers of type `%.40s` are not supported", w);
    return MIXER_MLA;
}

/* The floor of decays: absent means the default; null means none, if no key asks for one. */
static void decay_floor(struct config *c, struct decoder_spec *s)
{
    const cJSON *own = config_object(c, c->root, "linear_attn_config");
    const cJSON *in = own ? own : c->root;
    const char *key = own ? "gate_lower_bound" : "linear_lower_bound";
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(in, key);
    const bool none = cJSON_IsNull(n) && !(own && json_bool(own, "safe_gate", true));
    s->recur.decay_floor = none ? 0 : n && cJSON_IsNumber(n) ? (float)n->valuedouble : -5;
    if (!none && !(s->recur.decay_floor < 0))
        config_fail(c, "`%s` must be below 0", key);
}

static void attention(struct config *c, struct decoder_spec *s)
{
    struct index_spec *x = &s->mla.index;
    const cJSON *word = config_layer_list(c, s, "layer_types");
    config_latent_still(c, s, 1536, 256);
    s->mla.eps = s->norm.eps;
    for (uint32_t i = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        s->layers[i].mixer = mixer_of(c, word, i);
        s->layers[i].attn_scale = spec_head_scale(s);
    }
    config_indexer(c, s, &(struct index_defaults){.heads = 32, .every = 1, .eps = 1e-6});
    x->pool = config_u32_or(c, "index_kpool", 16, 1, 4096);
    config_only(c, "index_kpool_always_select_tail", true);
    if (x->top % x->pool)
        config_fail(c, "`index_topk` must be a multiple of `index_kpool`");
    x->top = x->top / x->pool + 1;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->score = MOE_SIGMOID;
    m->select_bias = m->group_pairs = true;
    config_deepseek_moe(c, s);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 2.5);
    m->shared_ffn = m->ffn * config_u32_or(c, "n_shared_experts", 1, 1, 64);
    config_mlp_layer_types(c, s, 3);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    /* 0 in files of transformers: the width of the rotated part, which there is not */
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, "head_dim");
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 256, .max_positions = 1048576, .norm_eps = 1e-5});
    s->act = config_act_limit(c, "swiglu_limit", ACT_SILU_CLAMPED);
    config_only_word(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    config_kimi_delta(c, s, 64);
    decay_floor(c, s);
    attention(c, s);
    experts(c, s);
    s->mix.n = config_u32_or(c, "hc_mult", 4, 1, MIX_MOST);
    s->mix.rounds = config_u32_or(c, "hc_sinkhorn_iters", 20, 1, 1000);
    s->mix.floor = (float)config_num_or(c, "hc_eps", 1e-6);
    s->mix.magnitude = 2;
    s->mix.mean_last = true;
}

#define STREAMS(of, v5) "model.layers.*.hc_" of "|model.layers.*." v5
#define KDA(of)         "model.layers.*.self_attn." of

const struct arch arch_glm5_next = {
    .types = (const char *const[]){"glm5_next_text", "glm5_next", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_O,
              NAMES_LLAMA_MLP,
              NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS,
              NAMES_LATENT,
              NAMES_INDEXER,
              [W_K] = KDA("k_proj"),
              [W_V] = KDA("v_proj"),
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias",
              [W_INDEX_POOL_GATE] = KDA("indexer.index_kpool_compress_gate"),
              [W_INDEX_POOL_BIAS] = KDA("indexer.index_kpool_compress_ape"),
              NAMES_DELTA_CONVS("model.layers.*.self_attn."),
              [W_MIX_BETA] = KDA("b_proj"),
              [W_MIX_DECAY_DOWN] = KDA("f_a_proj") "|" KDA("forget_gate.f_a_proj"),
              [W_MIX_DECAY_UP] = KDA("f_b_proj") "|" KDA("forget_gate.f_b_proj"),
              [W_MIX_Z_DOWN] = KDA("g_a_proj"),
              [W_MIX_Z_UP] = KDA("g_b_proj"),
              [W_MIX_RATE] = KDA("A_log") "|" KDA("forget_gate.A_log"),
              [W_MIX_DT] = KDA("dt_bias") "|" KDA("forget_gate.dt_bias"),
              [W_MIX_NORM] = KDA("o_norm.weight"),
              [W_STREAM_MIX] = STREAMS("attn_fn", "attn_hc.fn"),
              [W_STREAM_BASE] = STREAMS("attn_base", "attn_hc.base"),
              [W_STREAM_SCALE] = STREAMS("attn_scale", "attn_hc.scale"),
              [W_STREAM_MIX_FFN] = STREAMS("ffn_fn", "ffn_hc.fn"),
              [W_STREAM_BASE_FFN] = STREAMS("ffn_base", "ffn_hc.base"),
              [W_STREAM_SCALE_FFN] = STREAMS("ffn_scale", "ffn_hc.scale")},
    .configure = configure,
};
