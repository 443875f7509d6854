/* A.X K2 (SK Telecom): DeepSeek V3.2 with an elementwise gate on the attention output, computed
 * from the query latent before and after its norm, and low-rank gated norms. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void attention(struct config *c, struct decoder_spec *s)
{
    const cJSON *type = config_layer_list(c, s, "layer_types");
    const double m_all = config_rope_mscale(c);
    config_latent(c, s, 384, 64);
    s->rope[0].interleaved = true;
    config_rope(c, s, 10000);
    for (uint32_t i = 0; i < s->n_layers; i++, type = type ? type->next : NULL) {
        const char *word = type && cJSON_IsString(type) ? type->valuestring : "";
        if (type && strcmp(word, "indexed_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", word);
        s->layers[i].mixer = MIXER_MLA;
        s->layers[i].attn_scale = spec_head_scale(s) * (float)(m_all * m_all);
    }
    s->attn_gate = ATTN_GATE_APART;
    s->mla.gate_beside = true;
    config_indexer(c, s, &(struct index_defaults){.heads = 16, .every = 1, .eps = 1e-6});
    s->mla.index.interleaved = false;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.head_dim = 64, .max_positions = 131072, .norm_eps = 1e-6});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    if (config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`moe_layer_freq`: only 1 is supported");
    attention(c, s);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    s->moe.shared_ffn = s->moe.ffn * config_u32_or(c, "n_shared_experts", 1, 0, 64);
    if (!json_get(c->root, "n_group") != !json_get(c->root, "topk_group"))
        config_fail(c, "`n_group` and `topk_group` belong together");
    s->moe.scale = (float)config_num_or(c, "routed_scaling_factor", 2.5);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 1, 0, SPEC_MAX_LAYERS));
    s->norm_gate = config_u32_or(c, "gated_norm_rank", 16, 1, 1u << 16);
}

/* The names of the repository, then those of transformers. */
#define GATE(norm, hub, v5) "model.layers.*." norm "." hub "|model.layers.*." norm ".mlp." v5

const struct arch arch_axk2 = {
    .types = (const char *const[]){"axk2", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              NAMES_LLAMA_O,
              NAMES_GATED_MLP,
              NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS,
              [W_Q_A] = "model.layers.*.self_attn.q_a_proj",
              [W_Q_A_NORM] = "model.layers.*.self_attn.q_a_layernorm",
              [W_KV_A] = "model.layers.*.self_attn.kv_a_proj_with_mqa",
              [W_KV_A_NORM] = "model.layers.*.self_attn.kv_a_layernorm",
              [W_KV_B] = "model.layers.*.self_attn.kv_b_proj",
              NAMES_INDEXER,
              [W_ATTN_NORM] = "model.layers.*.input_layernorm.norm",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm.norm|"
                             "model.layers.*.post_attention_layernorm",
              [W_ATTN_NORM_DOWN] = GATE("input_layernorm", "W_down", "fc1"),
              [W_ATTN_NORM_UP] = GATE("input_layernorm", "W_up", "fc2"),
              [W_MLP_NORM_DOWN] = GATE("post_attention_layernorm", "W_down", "fc1"),
              [W_MLP_NORM_UP] = GATE("post_attention_layernorm", "W_up", "fc2"),
              [W_Q_B] = "model.layers.*.self_attn.q_b_proj|model.layers.*.self_attn.q_gate_proj",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
