/* Tencent's Hunyuan V4: several residual streams; latent attention with sinks, an output gate and
 * indexers whose selections are shared between layers; DeepSeek's experts with a clamped
 * activation. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Coordinates of the model with vision alternate, whether or not its file says so. Those that a
 * file does not number are of the published size, which alone has images then. */
static void coordinates(struct config *c, struct decoder_spec *s)
{
    const cJSON *given = json_get(json_get(c->root, "rope_parameters"), "mrope_section");
    cJSON *own = given ? NULL : cJSON_CreateIntArray((const int[]){12, 10, 10}, 3);
    if (given || s->rope[0].dim == 64)
        config_rope_axes(c, &s->rope[0], given ? given : own, true);
    cJSON_Delete(own);
}

static void attention(struct config *c, struct decoder_spec *s)
{
    const cJSON *type = config_layer_list(c, s, "layer_types");
    const double m_all = config_rope_mscale(c);
    /* the model with vision turns neighbouring elements, and its latent norms have the file's eps
     */
    const bool sees = strcmp(json_str(c->root, "model_type", ""), "hy_v4_vl_text") == 0;
    config_latent(c, s, sees ? 2048 : 1536, 256);
    if (sees)
        s->mla.eps = s->norm.eps;
    s->rope[0].interleaved = sees;
    config_rope(c, s, 10000);
    if (sees)
        coordinates(c, s);
    for (uint32_t i = 0; i < s->n_layers; i++, type = type ? type->next : NULL) {
        const char *word = type && cJSON_IsString(type) ? type->valuestring : "";
        if (type && strcmp(word, "indexed_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", word);
        s->layers[i].mixer = MIXER_MLA;
        s->layers[i].attn_scale = spec_head_scale(s) * (float)(m_all * m_all);
    }
    s->sinks = SINKS_ALL;
    s->attn_gate = ATTN_GATE_APART;
    config_indexer(
        c, s,
        &(struct index_defaults){.heads = sees ? 32 : 16, .every = 4, .eps = (double)s->norm.eps});
    s->mla.index.interleaved = sees;
    s->mla.index.rope_last = true;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->score = MOE_SIGMOID;
    m->select_bias = m->group_pairs = true;
    config_deepseek_moe(c, s);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 2.827);
    m->shared_ffn = m->ffn * config_u32_or(c, "n_shared_experts", 1, 1, 64);
    config_mlp_layer_types(c, s, 1);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe_act = config_act_limit(c, "swiglu_limit", ACT_SILU_CLAMPED);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.head_dim = 64, .max_positions = 262144, .norm_eps = 1e-5});
    s->act = ACT_SILU;
    config_only_word(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    attention(c, s);
    experts(c, s);
    s->mix.n = config_u32_or(c, "hc_mult", 4, 1, MIX_MOST);
    s->mix.magnitude = (float)config_num_or(c, "hc_magnitude", 2);
    s->mix.floor = s->mix.result_floor = (float)config_num_or(c, "hc_eps", 1e-6);
}

/* The repository's files, as transformers reads and as it writes them, then its own names. */
#define STREAMS(hub, v5, of)                                                                       \
    "model.layers.*.hc_pre.hc_" hub "_layer.hc_" of "|model.layers.*.hc_" hub                      \
    "_layer.hc_pre.hc_" of "|model.layers.*.hc_" hub "_layer.hc_" of "|model.layers.*." v5         \
    "_hc." of
#define LAST(of)                                                                                   \
    "model.hc_pre.hc_head.hc_head_" of "|model.hc_head.hc_pre.hc_head_" of                         \
    "|model.hc_head.hc_head_" of "|model.hc_head.hc_" of
#define GATE(in) "model.layers.*." in "gate_proj|model.layers.*." in "linear_gate"

const struct arch arch_hy_v4 = {
    .types = (const char *const[]){"hy_v4", "hy_v4_vl_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_O,
              NAMES_EXPERTS,
              NAMES_LATENT,
              NAMES_INDEXER,
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE] = GATE("mlp."),
              [W_UP] = "model.layers.*.mlp.up_proj",
              [W_DOWN] = "model.layers.*.mlp.down_proj",
              [W_SHARED_GATE] = GATE("mlp.shared_experts."),
              [W_SHARED_UP] = "model.layers.*.mlp.shared_experts.up_proj",
              [W_SHARED_DOWN] = "model.layers.*.mlp.shared_experts.down_proj",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias",
              [W_ATTN_GATE] = GATE("self_attn."),
              [W_SINKS] = "model.layers.*.self_attn.learnable_sink_param|"
                          "model.layers.*.self_attn.sinks",
              [W_STREAM_MIX] = STREAMS("attn", "attn", "fn"),
              [W_STREAM_BASE] = STREAMS("attn", "attn", "base"),
              [W_STREAM_SCALE] = STREAMS("attn", "attn", "scale"),
              [W_STREAM_MIX_FFN] = STREAMS("mlp", "ffn", "fn"),
              [W_STREAM_BASE_FFN] = STREAMS("mlp", "ffn", "base"),
              [W_STREAM_SCALE_FFN] = STREAMS("mlp", "ffn", "scale"),
              [W_STREAM_MIX_LAST] = LAST("fn"),
              [W_STREAM_BASE_LAST] = LAST("base"),
              [W_STREAM_SCALE_LAST] = LAST("scale")},
    .configure = configure,
};
