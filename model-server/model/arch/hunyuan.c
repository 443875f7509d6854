/* Hunyuan (Tencent, arXiv 2411.02265), dense and with experts: Llama with QK norm after RoPE; and
 * the text model of HunyuanOCR and HunyuanVL. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

/* Runs of angles: the last three rotate by coordinates of a token in its image, those before by its
 * place in the prompt. */
static void coordinates(struct config *c, struct rope_spec *r, const cJSON *sections)
{
    const int before = cJSON_GetArraySize(sections) - 3;
    const cJSON *j;
    uint32_t at = 0;
    int k = 0;
    cJSON_ArrayForEach(j, sections)
    {
        const double n = cJSON_IsNumber(j) ? j->valuedouble : -1;
        for (double i = 0; i < n && at < r->dim / 2; i++)
            r->axis[at++] = k < before ? ROPE_BY_PLACE : (uint8_t)(k - before);
        if (before < 0 || !(n >= 0) || n != floor(n))
            config_fail(c, "`xdrope_section` must be three or more numbers");
        k++;
    }
    if (at != r->dim / 2)
        config_fail(c, "`xdrope_section` must have the sum %u", r->dim / 2);
    r->has_axes = true;
    r->by_place = before > 0;
}

/* "dynamic" with an alpha is another base, whatever the length. HunyuanVL's "xdrope" is the same,
 * with coordinates for images. */
static void rope(struct config *c, struct decoder_spec *s, bool sees)
{
    cJSON *p = cJSON_GetObjectItemCaseSensitive(c->root, "rope_parameters");
    p = cJSON_IsObject(p) ? p : cJSON_GetObjectItemCaseSensitive(c->root, "rope_scaling");
    cJSON *sections = cJSON_DetachItemFromObjectCaseSensitive(p, "mrope_section");
    const cJSON *own = sections ? sections : json_get(p, "xdrope_section");
    const char *type = json_str(p, "rope_type", json_str(p, "type", "default"));
    type = strcmp(type, "xdrope") == 0 ? "dynamic" : type;
    const double alpha = json_num(p, "alpha", 0), dim = s->head_dim;
    s->rope[0].dim = s->head_dim;
    if (sees && own)
        coordinates(c, &s->rope[0], own);
    cJSON_Delete(sections);
    if (c->rope_scaling || strcmp(type, "dynamic") != 0 || alpha == 0) {
        config_rope(c, s, 10000);
        return;
    }
    if (!(alpha > 0) || dim <= 2)
        config_fail(c, "the rotation's `alpha` must be positive");
    const double theta = json_num(p, "rope_theta", config_num_or(c, "rope_theta", 10000));
    s->rope[0].kind = ROPE_DEFAULT;
    s->rope[0].attention_factor = 1;
    s->rope[0].theta = theta * pow(alpha, dim / (dim - 2));
    if (!(s->rope[0].theta > 1))
        config_fail(c, "`rope_theta` must be above 1");
}

/* A number, or a list that has it for every layer. */
static uint32_t for_all(struct config *c, const char *key, uint32_t def, uint32_t layers)
{
    const cJSON *list = json_get(c->root, key), *j = NULL;
    if (!cJSON_IsArray(list))
        return config_u32_or(c, key, def, 0, 1u << 22);
    const cJSON *first = cJSON_GetArrayItem(list, 0);
    double all = cJSON_IsNumber(first) ? first->valuedouble : -1;
    cJSON_ArrayForEach(j, list) if (!cJSON_IsNumber(j) || j->valuedouble != all) all = -1;
    if (!(all >= 0 && all <= 1u << 22) || all != floor(all) ||
        (uint32_t)cJSON_GetArraySize(list) != layers) {
        config_fail(c, "`%s`: only one number for all layers is supported", key);
        return def;
    }
    return (uint32_t)all;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->n_experts = for_all(c, "num_experts", 1, s->n_layers);
    m->top_k = for_all(c, "moe_topk", 1, s->n_layers);
    m->ffn = for_all(c, "moe_intermediate_size", s->ffn, s->n_layers);
    m->shared_ffn = s->ffn * for_all(c, "num_shared_expert", 1, s->n_layers);
    m->score = MOE_SOFTMAX;
    m->renormalise = true;
    m->scale = 1;
    if (m->n_experts < 1 || m->top_k < 1 || m->ffn < 1)
        config_fail(c, "`num_experts`, `moe_topk` and `moe_intermediate_size` must be positive");
    if (config_u32_or(c, "moe_layer_num_skipped", 0, 0, SPEC_MAX_LAYERS))
        config_fail(c, "`moe_layer_num_skipped`: only 0 is supported");
    config_only(c, "moe_drop_tokens", false);
    config_moe_layers(s);
    config_check_moe(c, s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool sees = strncmp(json_str(c->root, "model_type", ""), "hunyuan_vl", 10) == 0;
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .tied = sees});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = config_bool_or(c, "use_qk_norm", true) ? QK_NORM_HEAD : QK_NORM_NONE;
    s->qk_norm_last = true;
    config_only(c, "use_cla", false);
    config_only(c, "use_mla", false);
    config_only(c, "mlp_bias", false);
    rope(c, s, sees);
    if (strcmp(json_str(c->root, "model_type", ""), "hunyuan_v1_moe") == 0)
        experts(c, s);
}

static const struct config_key keys[] = {{"head_dim", "attention_head_dim", false},
                                         {NULL, NULL, false}};

const struct arch arch_hunyuan = {
    .types = (const char *const[]){"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text",
                                   "hunyuan_vl", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_ROUTER] = "model.layers.*.mlp.gate.wg",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_DOWN] =
                  "model.layers.*.mlp.experts.down_proj|model.layers.*.mlp.experts.*.down_proj",
              [W_Q_NORM] = "model.layers.*.self_attn.query_layernorm",
              [W_K_NORM] = "model.layers.*.self_attn.key_layernorm",
              [W_SHARED_GATE] = "model.layers.*.mlp.shared_mlp.gate_proj",
              [W_SHARED_UP] = "model.layers.*.mlp.shared_mlp.up_proj",
              [W_SHARED_DOWN] = "model.layers.*.mlp.shared_mlp.down_proj"},
    .keys = keys,
    .configure = configure,
};
