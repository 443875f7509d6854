/* ERNIE 4.5 with experts: softmax router with a selection bias, shared experts. The text model of
 * ERNIE 4.5 VL, whose files also have experts for image tokens. */
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

/* Pictures' experts are as many as texts', with a router and a row of biases of their own. */
static void seeing(struct config *c, struct decoder_spec *s)
{
    const cJSON *n = json_get(c->root, "moe_num_experts");
    s->rope[0].has_axes = false; /* all three positions of a text's token are equal */
    s->moe.beside_pictures = true;
    if (cJSON_IsArray(n) && (cJSON_GetArraySize(n) != 2 || !cJSON_IsNumber(n->child->next) ||
                             n->child->next->valuedouble != s->moe.n_experts))
        config_fail(c, "`moe_num_experts` must be two equal numbers");
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
              [W_SELECT_BIAS] = "model.layers.*.mlp.text_moe.gate.moe_statics."
                                "e_score_correction_bias|"
                                "model.layers.*.mlp.gate.moe_statics.e_score_correction_bias|"
                                "model.layers.*.mlp.moe_statics.e_score_correction_bias"},
    .configure = configure,
};
