/* Xiaomi's MiMo-V2-Flash and MiMo-V2.5: values narrower than keys; sliding windows in most layers,
 * with attention sinks, twice as many key-value heads and their own RoPE. Router: sigmoid scores
 * and a selection bias. MiMo-V2.5 stores q, k and v interleaved in one matrix.
 * https://huggingface.co/XiaomiMiMo/MiMo-V2-Flash */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static const double ROTATES = 0.334; /* of a head */

/* Element `layer` of a list of 0 and 1, which the repository's files have; else `def`. */
static bool listed(struct config *c, const char *key, uint32_t layer, bool def)
{
    const cJSON *j = cJSON_GetArrayItem(json_get(c->root, key), (int)layer);
    return j ? cJSON_IsNumber(j) && j->valuedouble != 0 : def;
}

static bool sliding(struct config *c, uint32_t layer)
{
    return listed(c, "hybrid_layer_pattern", layer, layer != 0 && (layer + 1) % 6 != 0);
}

/* sliding_window_size does not count the token itself, and replaces sliding_window. */
static void windows(struct config *c, struct decoder_spec *s)
{
    const uint32_t kv_heads =
        config_u32_or(c, "swa_num_key_value_heads", 2 * s->n_kv_heads, 1, 1u << 16);
    const uint32_t before = config_u32_or(c, "sliding_window_size", 0, 1, 1u << 30);
    config_windows(c, s, 129, sliding);
    if (s->n_heads % kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", kv_heads, s->n_heads);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        if (!l->window)
            continue;
        l->window = before ? before + 1 : l->window;
        l->n_kv_heads = kv_heads;
    }
    s->sinks = SINKS_WINDOWS;
    config_only(c, "add_swa_attention_sink_bias", true);
    config_only(c, "add_full_attention_sink_bias", false);
}

/* The repository's files name the sizes of both kinds of layers. */
static void heads(struct config *c, struct decoder_spec *s)
{
    s->v_dim = config_u32_or(c, "v_head_dim", 128, 1, 4096);
    if (config_u32_or(c, "swa_num_attention_heads", s->n_heads, 1, 1u << 16) != s->n_heads ||
        config_u32_or(c, "swa_head_dim", s->head_dim, 1, 4096) != s->head_dim ||
        config_u32_or(c, "swa_v_head_dim", s->v_dim, 1, 4096) != s->v_dim)
        config_fail(c, "layers with a window must have heads of the others' number and sizes");
}

/* A factor of the values is one of attention's result; null: none. */
static void value_scale(struct config *c, struct decoder_spec *s, bool flash)
{
    static const char key[] = "attention_value_scale";
    const bool said = cJSON_HasObjectItem(c->root, key) || !flash;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].mixer_by = (float)config_num_or(c, key, said ? 1 : 0.707);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    config_only_word(c, "scoring_func", "sigmoid");
    config_only_word(c, "topk_method", "noaux_tc");
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    config_mlp_layer_types(c, s, 1);
    if (config_layer_list(c, s, "moe_layer_freq"))
        for (uint32_t i = 0; i < s->n_layers; i++)
            s->layers[i].moe = listed(c, "moe_layer_freq", i, true);
}

/* A turn has one key-value head of the layers without a window; files with a tensor of q alone have
 * no turns, whatever they say. */
static void turns(struct config *c, struct decoder_spec *s)
{
    const char *layout = config_str_or(c, "attention_projection_layout", "fused_qkv");
    if (strcmp(layout, "split") == 0)
        return;
    if (strcmp(layout, "fused_qkv") != 0)
        config_fail(c, "`attention_projection_layout` %.40s is not supported", layout);
    s->qkv = QKV_TURNS;
    s->qkv_turns = s->n_kv_heads;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (spec_kv_heads(s, i) % s->qkv_turns)
            config_fail(c, "`swa_num_key_value_heads` must be a multiple of "
                           "`num_key_value_heads`, by which q, k and v take turns");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool flash = strcmp(json_str(c->root, "model_type", ""), "mimo_v2") != 0;
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 192,
                                             .max_positions = 131072,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 5000000,
                                             .rotary = ROTATES});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = config_bool_or(c, "attention_bias", false);
    heads(c, s);
    windows(c, s);
    config_window_rope(c, s, config_num_or(c, "swa_rope_theta", 10000));
    const cJSON *set = json_get(json_get(c->root, "rope_parameters"), "sliding_attention");
    if (set)
        s->rope[1].dim =
            config_rotary_part(c, s->head_dim, json_num(set, "partial_rotary_factor", ROTATES));
    value_scale(c, s, flash);
    if (!flash)
        turns(c, s);
    experts(c, s);
}

static const struct config_key keys[] = {{"rms_norm_eps", "layernorm_epsilon", false},
                                         {NULL, NULL, false}};

const struct arch arch_mimo_v2_flash = {
    .types = (const char *const[]){"mimo_v2_flash", "mimo_v2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, [W_QKV] = "model.layers.*.self_attn.qkv_proj",
              [W_SINKS] = "model.layers.*.self_attn.sinks|"
                          "model.layers.*.self_attn.attention_sink_bias",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .keys = keys,
    .configure = configure,
};
