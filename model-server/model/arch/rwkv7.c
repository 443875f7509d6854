/* RWKV-7 Goose (arXiv 2503.14456): no attention and no position limit, but a recurrence with a
 * generalised delta rule and a decay per channel; squared-ReLU MLPs; both sublayers mix their input
 * with that of the previous token (token shift). */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* One number, or one for each layer. */
static void check_value_dim(struct config *c, uint32_t hidden)
{
    const cJSON *j = json_get(c->root, "value_dim");
    const bool list = cJSON_IsArray(j);
    bool fits = true;
    for (const cJSON *at = list ? j->child : j; at; at = list ? at->next : NULL)
        fits &= cJSON_IsNull(at) || (cJSON_IsNumber(at) && at->valuedouble == hidden);
    if (!fits)
        config_fail(c, "`value_dim`: only `hidden_size` is supported");
}

/* head_dim, or num_heads: the first one matters. */
static void heads(struct config *c, struct decoder_spec *s)
{
    const cJSON *dim = json_get(c->root, "head_dim"), *n = json_get(c->root, "num_heads");
    uint32_t each = 64;
    if (cJSON_IsNumber(dim))
        each = config_u32(c, "head_dim", 1, CONFIG_MOST_DIM);
    else if (cJSON_IsNumber(n))
        each = s->hidden / config_heads(c, "num_heads");
    if (!each || s->hidden % each)
        config_fail(c, "`head_dim` does not divide `hidden_size`");
    s->recur.key_dim = s->recur.value_dim = s->head_dim = each ? each : 1;
    s->recur.heads = s->recur.key_heads = s->n_heads = s->n_kv_heads = s->hidden / s->head_dim;
}

static void ranks(struct config *c, struct rwkv_spec *r)
{
    r->decay = config_u32_or(c, "decay_low_rank_dim", 64, 1, 1u << 16);
    r->rate = config_u32_or(c, "a_low_rank_dim", 64, 1, 1u << 16);
    r->blend = config_u32_or(c, "v_low_rank_dim", 16, 1, 1u << 16);
    r->gate = config_u32_or(c, "gate_low_rank_dim", 128, 1, 1u << 16);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const double ratio = config_num_or(c, "hidden_ratio", 4);
    s->hidden = config_dim(c, "hidden_size");
    s->n_layers = config_layers(c, "num_hidden_layers");
    s->vocab = config_vocab(c, "vocab_size");
    s->tied = config_bool_or(c, "tie_word_embeddings", false);
    s->norm =
        (struct norm_spec){.kind = NORM_LAYER, .eps = (float)config_num_or(c, "norm_eps", 1e-5)};
    s->bias.norm = config_bool_or(c, "norm_bias", true);
    s->embed_scale = s->residual_scale = s->logit_scale = s->moe.scale = 1;
    s->embed_norm = true;
    s->mlp = MLP_PLAIN;
    s->act = ACT_RELU2;
    config_only_word(c, "hidden_act", "sqrelu");
    config_only(c, "norm_first", true);
    if (config_object(c, c->root, "attn"))
        config_fail(c, "`attn`: layers of attention are not supported");
    check_value_dim(c, s->hidden);
    heads(c, s);
    ranks(c, &s->rwkv);
    s->rwkv.eps = (float)s->head_dim * s->norm.eps;
    if (!(ratio > 0 && ratio <= 64))
        config_fail(c, "`hidden_ratio` must be above 0, and at most 64");
    const uint32_t usual = (uint32_t)(s->hidden * ratio), each = 32;
    s->ffn = config_u32_or(c, "intermediate_size", (usual + each - 1) / each * each, 1, 1u << 24);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.mixer = MIXER_RWKV};
}

#define ATTN(what) "model.layers.*.attn." what
const struct arch arch_rwkv7 = {
    .types = (const char *const[]){"rwkv7", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embeddings",
              [W_EMBED_NORM] = "model.layers.0.pre_norm",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.attn_norm",
              [W_MLP_NORM] = "model.layers.*.ffn_norm",
              [W_SHIFT_Q] = ATTN("x_r"),
              [W_SHIFT_K] = ATTN("x_k"),
              [W_SHIFT_V] = ATTN("x_v"),
              [W_SHIFT_DECAY] = ATTN("x_w"),
              [W_SHIFT_RATE] = ATTN("x_a"),
              [W_SHIFT_GATE] = ATTN("x_g"),
              [W_Q] = ATTN("r_proj"),
              [W_K] = ATTN("k_proj"),
              [W_V] = ATTN("v_proj"),
              [W_O] = ATTN("o_proj"),
              [W_MIX_DECAY_DOWN] = ATTN("w_lora.lora.0"),
              [W_MIX_DECAY_UP] = ATTN("w_lora.lora.2"),
              [W_MIX_RATE_DOWN] = ATTN("a_lora.lora.0"),
              [W_MIX_RATE_UP] = ATTN("a_lora.lora.2"),
              [W_MIX_BLEND_DOWN] = ATTN("v_lora.lora.0"),
              [W_MIX_BLEND_UP] = ATTN("v_lora.lora.2"),
              [W_MIX_Z_DOWN] = ATTN("g_lora.lora.0"),
              [W_MIX_Z_UP] = ATTN("g_lora.lora.2"),
              [W_MIX_ERASE] = ATTN("k_k"),
              [W_MIX_REPLACE] = ATTN("k_a"),
              [W_MIX_BONUS] = ATTN("r_k"),
              [W_MIX_NORM] = ATTN("g_norm.weight"),
              [W_MIX_NORM_BIAS] = ATTN("g_norm.bias"),
              [W_SHIFT_ALL] = ATTN("x_x"),
              [W_SHIFT_FFN] = "model.layers.*.ffn.x_k",
              [W_UP] = "model.layers.*.ffn.key",
              [W_DOWN] = "model.layers.*.ffn.value"},
    .configure = configure,
};
