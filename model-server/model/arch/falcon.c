/* Falcon 7B, 11B, 40B, 180B (arXiv 2311.16867): parallel attention and MLP, multi-query or
 * grouped-query attention. The RW models use ALiBi, rounded to bfloat16 as in training. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* One norm feeds both branches but in the models of 40B and 180B. The first files of those say
 * RefinedWeb and nothing else of it. */
static void layout(struct config *c, struct decoder_spec *s)
{
    const bool large = strcmp(json_str(c->root, "model_type", ""), "RefinedWeb") == 0;
    const bool grouped = config_bool_or(c, "new_decoder_architecture", large);
    const uint32_t kv = config_u32_or(c, "num_kv_heads", s->n_heads, 1, 1u << 16);
    const bool one = config_bool_or(c, "multi_query", true);
    s->n_kv_heads = grouped ? kv : one ? 1 : s->n_heads;
    s->qkv = grouped || !one ? QKV_GROUPED : QKV_STACKED;
    if (s->n_heads % s->n_kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", s->n_kv_heads, s->n_heads);
    s->parallel = grouped || config_bool_or(c, "parallel_attn", true);
    s->shared_norm =
        s->parallel && (!grouped || config_u32_or(c, "num_ln_in_parallel_attn", 2, 1, 2) == 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 2048, .ffn_times = 4, .tied = true});
    if (config_bool_or(c, "alibi", false))
        s->alibi = (struct alibi_spec){ALIBI_PAPER, 8, .bf16 = true};
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    layout(c, s);
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation", "gelu");
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "bias", false);
    if (!s->alibi.order) {
        s->rope[0].dim = s->head_dim;
        config_rope(c, s, 10000);
    }
}

static const struct config_key keys[] = {
    {"intermediate_size", "ffn_hidden_size", true}, {"num_key_value_heads", NULL},
    {"num_hidden_layers", "n_layer", false},        {"num_attention_heads", "n_head", false},
    {"num_kv_heads", "n_head_kv", false},           {NULL, NULL}};

const struct arch arch_falcon = {
    .types = (const char *const[]){"falcon", "RefinedWeb", "RefinedWebModel", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.word_embeddings",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.input_layernorm|transformer.h.*.ln_attn",
              [W_MLP_NORM] = "transformer.h.*.post_attention_layernorm|transformer.h.*.ln_mlp",
              [W_QKV] = "transformer.h.*.self_attention.query_key_value",
              [W_O] = "transformer.h.*.self_attention.dense",
              [W_UP] = "transformer.h.*.mlp.dense_h_to_4h",
              [W_DOWN] = "transformer.h.*.mlp.dense_4h_to_h"},
    .configure = configure,
};
