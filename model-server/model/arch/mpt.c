/* MPT: ALiBi, layer norms without biases, q, k and v in one matrix. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void attention(struct config *c, struct decoder_spec *s)
{
    const cJSON *a = json_get(c->root, "attn_config");
    const double scale = json_num(a, "softmax_scale", 0);
    if (!json_bool(a, "alibi", true) || json_bool(a, "qk_ln", false) ||
        json_bool(a, "prefix_lm", false))
        config_fail(c, "`attn_config`: only alibi is supported, without qk_ln and prefix_lm");
    s->clip_qkv = (float)json_num(a, "clip_qkv", 0);
    if (s->clip_qkv < 0)
        config_fail(c, "`clip_qkv` must be positive");
    s->alibi = (struct alibi_spec){ALIBI_MPT, (float)json_num(a, "alibi_bias_max", 8)};
    s->n_kv_heads = (uint32_t)json_num(a, "kv_n_heads", s->n_heads);
    if (s->n_kv_heads < 1 || s->n_kv_heads > s->n_heads || s->n_heads % s->n_kv_heads)
        config_fail(c, "`kv_n_heads` does not divide %u heads", s->n_heads);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = scale > 0 ? (float)scale : spec_head_scale(s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", false);
    config_only(c, "no_bias", true);
    s->qkv = QKV_STACKED;
    s->mlp = MLP_PLAIN;
    s->act = ACT_GELU;
    s->logit_scale = (float)config_num_or(c, "logit_scale", 1);
    attention(c, s);
}

static const struct config_key keys[] = {{"hidden_size", "d_model"},
                                         {"num_hidden_layers", "n_layers"},
                                         {"num_attention_heads", "n_heads"},
                                         {"num_key_value_heads", NULL},
                                         {"intermediate_size", NULL},
                                         {"max_position_embeddings", NULL},
                                         {NULL, NULL}};

const struct arch arch_mpt = {
    .types = (const char *const[]){"mpt", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.norm_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.blocks.*.norm_1",
              [W_MLP_NORM] = "transformer.blocks.*.norm_2",
              [W_QKV] = "transformer.blocks.*.attn.Wqkv",
              [W_O] = "transformer.blocks.*.attn.out_proj",
              [W_UP] = "transformer.blocks.*.ffn.up_proj",
              [W_DOWN] = "transformer.blocks.*.ffn.down_proj"},
    .configure = configure,
};
