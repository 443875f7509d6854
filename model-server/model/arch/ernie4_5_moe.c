/* ERNIE 4.5 with experts: softmax router with a selection bias, shared experts. The text model of
 * ERNIE 4.5 VL, whose image tokens have a router and experts of their own. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The number under `key`; files with experts for pictures have a list there, whose first number is
 * that of texts. */
static double of_text(struct config *c, const char *key, double def)
{
    const cJSON *j = json_get(c->root, key);
    if (!cJSON_IsArray(j))
        return config_num_or(c, key, def);
    if (cJSON_IsNumber(j->child))
        return j->child->valuedouble;
    config_fail(c, "`%s` must be a list of numbers", key);
    return def;
}
static uint32_t count_of_text(struct config *c, const char *key, uint32_t def, uint32_t most)
{
    const double n = of_text(c, key, def);
    if (n >= 1 && n <= most && n == (uint32_t)n)
        return (uint32_t)n;
    config_fail(c, "`%s` must be an integer from 1 to %u", key, most);
    return 1;
}

/* Every moe_layer_interval-th layer from start to end has experts; end -1: the last one. */
static void sparse_layers(struct config *c, struct decoder_spec *s)
{
    const uint32_t step = config_u32_or(c, "moe_layer_interval", 1, 1, SPEC_MAX_LAYERS);
    const double start = of_text(c, "moe_layer_start_index", 1),
                 end = of_text(c, "moe_layer_end_index", -1);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = (i + 1) % step == 0 && i >= start && (end < 0 || i <= end);
}

/* Rows and columns alternate, then come the angles of time (the last of three lengths). Without
 * lengths, as in Baidu's files, `freq_allocation` is the number of these. */
static void rope_axes(struct config *c, struct rope_spec *r)
{
    const uint32_t half = r->dim / 2;
    const cJSON *in = json_get(c->root, "rope_parameters"),
                *old = json_get(c->root, "rope_scaling");
    const cJSON *sections = json_get(in ? in : old, "mrope_section"), *high = json_first(sections);
    const cJSON *wide = high ? high->next : NULL, *time = wide ? wide->next : NULL;
    const double of_time = time ? time->valuedouble : config_num_or(c, "freq_allocation", 20);
    if (!(of_time >= 0 && of_time <= half) || of_time != (uint32_t)of_time ||
        (half - (uint32_t)of_time) % 2 ||
        (sections && (!time || high->valuedouble != wide->valuedouble ||
                      2 * high->valuedouble + of_time != half))) {
        config_fail(c,
                    "rope `mrope_section` must be two equal numbers and a third one whose sum "
                    "is %u",
                    half);
        return;
    }
    r->has_axes = true;
    for (uint32_t i = 0; i < half; i++)
        r->axis[i] = i < half - (uint32_t)of_time ? (uint8_t)(1 + i % 2) : 0;
}

/* The second number under `key`, which is that of pictures. */
static double of_pictures(struct config *c, const char *key)
{
    const cJSON *j = json_get(c->root, key), *first = cJSON_IsArray(j) ? j->child : NULL;
    return first && cJSON_IsNumber(first->next) ? first->next->valuedouble : -1;
}

static uint32_t id_of(struct config *c, const char *key, uint32_t def)
{
    const double id = json_num(c->file, key, def);
    if (id >= 0 && id <= 1 << 24 && id == (uint32_t)id)
        return (uint32_t)id;
    config_fail(c, "`%s` must be a token id", key);
    return 0;
}

/* Pictures' experts are as many as texts', with a router and a row of biases of their own. */
static void seeing(struct config *c, struct decoder_spec *s)
{
    const double ffn = of_pictures(c, "moe_intermediate_size");
    rope_axes(c, &s->rope[0]);
    if (cJSON_IsArray(json_get(c->root, "moe_num_experts")) &&
        of_pictures(c, "moe_num_experts") != s->moe.n_experts)
        config_fail(c, "`moe_num_experts` must be two equal numbers");
    if (ffn >= 1 && ffn <= 1 << 22 && ffn == (uint32_t)ffn)
        s->moe.sight_ffn = (uint32_t)ffn;
    else
        config_fail(c, "`moe_intermediate_size` must be two numbers, of texts and of pictures");
    s->moe.sight_ids[0] = id_of(c, "image_start_token_id", 101304);
    s->moe.sight_ids[1] = id_of(c, "image_end_token_id", 101305);
    config_only_word(c, "moe_gate_act", "softmax");
    config_only(c, "moe_group_experts", false);
    if (json_get(c->root, "mlp_layer_types"))
        config_mlp_layer_types(c, s, 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "use_bias", false);
    config_only(c, "use_bias", false);
    s->moe.n_experts = count_of_text(c, "moe_num_experts", 64, 4096);
    s->moe.top_k = config_u32_or(c, "moe_k", 6, 1, 4096);
    s->moe.ffn = count_of_text(c, "moe_intermediate_size", 0, 1u << 22);
    s->moe.shared_ffn = s->moe.ffn * config_u32_or(c, "moe_num_shared_experts", 2, 0, 64);
    s->moe.renormalise = s->moe.select_bias = true;
    config_check_moe(c, s);
    if (!(config_num_or(c, "moe_norm_min", 1e-12) <= 1e-6)) /* of the sum of weights */
        config_fail(c, "`moe_norm_min` must be at most 1e-6");
    sparse_layers(c, s);
    if (strcmp(json_str(c->root, "model_type", ""), "ernie4_5_moe") != 0)
        seeing(c, s);
}

const struct arch arch_ernie4_5_moe = {
    .types = (const char *const[]){"ernie4_5_moe", "ernie4_5_vl_moe_text", "ernie4_5_moe_vl", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_SHARED_EXPERTS,
              [W_ROUTER] = "model.layers.*.mlp.text_moe.gate|model.layers.*.mlp.gate",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.text_moe.experts.gate_up_proj|"
                                "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.mlp.text_moe.experts.down_proj|"
                             "model.layers.*.mlp.experts.down_proj|"
                             "model.layers.*.mlp.experts.*.down_proj",
              [W_SIGHT_ROUTER] = "model.layers.*.mlp.vision_moe.gate|"
                                 "model.layers.*.mlp.gate.weight_1",
              [W_SIGHT_GATE_UP] = "model.layers.*.mlp.vision_moe.experts.gate_up_proj",
              [W_SIGHT_DOWN] = "model.layers.*.mlp.vision_moe.experts.down_proj",
              [W_SIGHT_SELECT_BIAS] = "model.layers.*.mlp.vision_moe.gate.moe_statics."
                                      "e_score_correction_bias",
              [W_SELECT_BIAS] = "model.layers.*.mlp.text_moe.gate.moe_statics."
                                "e_score_correction_bias|"
                                "model.layers.*.mlp.gate.moe_statics.e_score_correction_bias|"
                                "model.layers.*.mlp.moe_statics.e_score_correction_bias"},
    .configure = configure,
};
