/* DBRX: layer norms without biases, one clipped matrix for q, k and v, fine-grained experts whose
 * matrices are stored in one tensor. https://github.com/databricks/dbrx */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static uint32_t nested_u32(struct config *c, const cJSON *of, const char *key, uint32_t def,
                           uint32_t max)
{
    const double v = json_num(of, key, def);
    if (v >= 1 && v <= max && v == (uint32_t)v)
        return (uint32_t)v;
    config_fail(c, "`%s` must be an integer from 1 to %u", key, max);
    return 1;
}

static void attention(struct config *c, struct decoder_spec *s)
{
    const cJSON *a = json_get(c->root, "attn_config");
    s->n_kv_heads = nested_u32(c, a, "kv_n_heads", 1, 65536);
    if (s->n_heads % s->n_kv_heads)
        config_fail(c, "`kv_n_heads` does not divide %u heads", s->n_heads);
    s->clip_qkv = (float)json_num(a, "clip_qkv", 0);
    if (s->clip_qkv < 0)
        config_fail(c, "`clip_qkv` must be positive");
    s->qkv = QKV_STACKED;
    s->rope[0].dim = s->head_dim;
    config_rope(c, s, json_num(a, "rope_theta", 10000));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.attn_scale = spec_head_scale(s), .moe = true};
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const cJSON *f = json_get(c->root, "ffn_config"), *act = json_get(f, "ffn_act_fn");
    const cJSON *norm = json_get(f, "moe_normalize_expert_weights");
    s->ffn = s->moe.ffn = nested_u32(c, f, "ffn_hidden_size", 3584, 1u << 22);
    s->moe.n_experts = nested_u32(c, f, "moe_num_experts", 4, 4096);
    s->moe.top_k = nested_u32(c, f, "moe_top_k", 1, 4096);
    s->moe.layout = EXPERTS_STACKED;
    s->moe.scale = 1;
    s->moe.renormalise = norm && !cJSON_IsNull(norm);
    if (s->moe.renormalise && json_num(f, "moe_normalize_expert_weights", 1) != 1)
        config_fail(c, "`moe_normalize_expert_weights`: only the 1-norm is supported");
    s->act = ACT_SILU;
    if (strcmp(json_str(act, "name", "silu"), "silu") != 0)
        config_fail(c, "`ffn_act_fn`: only silu is supported");
    config_check_moe(c, s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "d_model");
    s->n_layers = config_layers(c, "n_layers");
    s->n_heads = config_heads(c, "n_heads");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "max_seq_len", 2048, 1, 1u << 30);
    s->tied = config_bool_or(c, "tie_word_embeddings", false);
    config_layer_norm(c, s, "layer_norm_epsilon", false);
    s->mlp = MLP_GATED;
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    attention(c, s);
    experts(c, s);
}

#define EXPERTS "transformer.blocks.*.ffn.experts."
const struct arch arch_dbrx = {
    .types = (const char *const[]){"dbrx", NULL},
    .prefix = "transformer.",
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.norm_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.blocks.*.norm_attn_norm.norm_1",
              [W_MLP_NORM] = "transformer.blocks.*.norm_attn_norm.norm_2",
              [W_QKV] = "transformer.blocks.*.norm_attn_norm.attn.Wqkv",
              [W_O] = "transformer.blocks.*.norm_attn_norm.attn.out_proj",
              [W_ROUTER] = "transformer.blocks.*.ffn.router.layer",
              /* in GGUF files each matrix is there alone */
              [W_MOE_GATE] = EXPERTS "mlp.w1|" EXPERTS "*.w1",
              [W_MOE_UP] = EXPERTS "mlp.v1|" EXPERTS "*.v1",
              [W_MOE_DOWN] = EXPERTS "mlp.w2|" EXPERTS "*.w2"},
    .configure = configure,
};
