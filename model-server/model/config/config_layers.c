/* The kind of each layer: rotation, experts. */
#include "common/json/json.h"
#include "model-server/model/config/config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const cJSON *config_layer_list(struct config *c, const struct decoder_spec *s, const char *key)
{
    const cJSON *list = json_get(c->root, key);
    if (!list || (cJSON_IsArray(list) && (uint32_t)cJSON_GetArraySize(list) == s->n_layers))
        return list ? list->child : NULL;
    config_fail(c, "`%s` does not name %u layers", key, s->n_layers);
    return NULL;
}

uint32_t config_own_size(struct config *c, uint32_t layer, const char *key)
{
    const cJSON *own;
    cJSON_ArrayForEach(own, json_get(c->root, "per_layer_config"))
    {
        const char *number = own->string ? own->string : "";
        char *end = NULL;
        const unsigned long at = strtoul(number, &end, 10);
        const double n = json_num(own, key, 0);
        if (end == number || *end || at != layer || !json_get(own, key))
            continue;
        if (n >= 1 && n <= 65536 && n == floor(n))
            return (uint32_t)n;
        config_fail(c, "`per_layer_config`: `%s` of layer %u must be an integer from 1 to 65536",
                    key, layer);
    }
    return 0;
}

bool config_all_but_nth(struct config *c, const char *key, uint32_t def, uint32_t layer)
{
    return (layer + 1) % config_u32_or(c, key, def, 1, 1u << 16) != 0;
}

bool config_pattern_layer(struct config *c, uint32_t layer)
{
    const char *word = json_str(c->root, "sliding_window_pattern", NULL);
    if (word && *word)
        return word[layer % strlen(word)] == 'L';
    return config_all_but_nth(c, "sliding_window_pattern", 4, layer);
}

void config_rotate_windows(struct decoder_spec *s)
{
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].rope = s->layers[i].window ? 0 : SPEC_NO_ROPE;
}

void config_attention_window(struct config *c, struct decoder_spec *s)
{
    enum { DEFAULT_WINDOW = 512 };
    const cJSON *list = json_get(c->root, "attention_window"), *j = NULL;
    const bool each = cJSON_IsArray(list);
    if (each)
        j = config_layer_list(c, s, "attention_window");
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const cJSON *one = each ? j : list;
        const double n = one ? cJSON_IsNumber(one) ? one->valuedouble : -1 : DEFAULT_WINDOW;
        if (!(n >= 2 && n <= 1u << 24) || n != 2 * (uint32_t)(n / 2)) {
            config_fail(c, "`attention_window` of layer %u must be an even number above 0", i);
            return;
        }
        s->layers[i].window = (uint32_t)n / 2 + 1;
    }
}

void config_window_rope(struct config *c, struct decoder_spec *s, double theta)
{
    const cJSON *set = json_get(json_get(c->root, "rope_parameters"), "sliding_attention");
    theta = json_num(set, "rope_theta", theta);
    const char *kind = json_str(set, "rope_type", "default");
    if (strcmp(kind, "default") != 0)
        config_fail(c, "rope type `%.40s` of layers with a window is not supported", kind);
    if (!(theta > 1))
        config_fail(c, "the `rope_theta` of layers with a window must be above 1");
    s->rope[1] = (struct rope_spec){.kind = ROPE_DEFAULT,
                                    .dim = s->rope[0].dim,
                                    .interleaved = s->rope[0].interleaved,
                                    .theta = theta,
                                    .attention_factor = 1};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].rope = s->layers[i].window ? 1 : 0;
}

static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    double n =
        config_num_or(c, "sliding_window_pattern", config_num_or(c, "_sliding_window_pattern", 6));
    return n < 1 || (layer + 1) % (uint32_t)n != 0;
}

void config_gemma3(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 131072,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 1000000,
                                             .tied = true,
                                             .heads = 8,
                                             .kv_heads = 4,
                                             .vocab = 262208});
    s->max_positions =
        config_u32_or(c, "max_position_embeddings", 131072, 1, 1u << 30); /* stretched already */
    config_gemma(c, s, 0);
    s->norm.plus = 1;
    s->qk_norm = QK_NORM_HEAD;
    config_attn_scale(c, s, 256);
    config_windows(c, s, 4096, all_but_every_nth);
    config_window_rope(c, s, config_num_or(c, "rope_local_base_freq", 10000));
}

void config_no_rope_layers(struct config *c, struct decoder_spec *s, uint32_t interval)
{
    const cJSON *list = json_get(c->root, "no_rope_layers"), *j = list ? list->child : NULL;
    const uint32_t n = config_u32_or(c, "no_rope_layer_interval", interval, 1, SPEC_MAX_LAYERS);
    if (j && (uint32_t)cJSON_GetArraySize(list) != s->n_layers) {
        config_fail(c, "`no_rope_layers` does not name %u layers", s->n_layers);
        return;
    }
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const bool rotates = j ? cJSON_IsNumber(j) && j->valuedouble != 0 : (i + 1) % n != 0;
        if (!rotates)
            s->layers[i].rope = SPEC_NO_ROPE;
    }
}

void config_layer_thetas(struct config *c, struct decoder_spec *s,
                         bool (*rotates)(struct config *c, uint32_t layer))
{
    const cJSON *list = json_get(c->root, "layer_rope_theta");
    const bool said = list && !cJSON_IsNull(list);
    const cJSON *j = said ? config_layer_list(c, s, "layer_rope_theta") : NULL;
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL)
        if (said ? j && cJSON_IsNumber(j) && j->valuedouble == 0 : !rotates(c, i))
            s->layers[i].rope = SPEC_NO_ROPE;
}

void config_sparse_layers(struct config *c, struct decoder_spec *s)
{
    uint32_t step = config_u32_or(c, "decoder_sparse_step", 1, 1, SPEC_MAX_LAYERS);
    const cJSON *dense = json_get(c->root, "mlp_only_layers"), *j;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = (i + 1) % step == 0;
    cJSON_ArrayForEach(j, dense)
    {
        if (cJSON_IsNumber(j) && j->valuedouble >= 0 && j->valuedouble < s->n_layers)
            s->layers[(uint32_t)j->valuedouble].moe = false;
    }
}

void config_moe_layers(struct decoder_spec *s)
{
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = true;
}

void config_check_moe(struct config *c, const struct decoder_spec *s)
{
    const struct moe_spec *m = &s->moe;
    uint32_t open = m->n_experts;
    if (m->n_groups > 1) {
        if (m->n_experts % m->n_groups || m->top_groups < 1 || m->top_groups > m->n_groups) {
            config_fail(c, "%u of %u groups of %u experts cannot be chosen", m->top_groups,
                        m->n_groups, m->n_experts);
            return;
        }
        open = m->n_experts / m->n_groups * m->top_groups;
    }
    if (m->top_k > open)
        config_fail(c, "%u experts per token cannot be chosen from %u", m->top_k, open);
}

void config_mlp_layer_types(struct config *c, struct decoder_spec *s, uint32_t dense)
{
    const cJSON *t = config_layer_list(c, s, "mlp_layer_types");
    for (uint32_t i = 0; i < s->n_layers; i++, t = t ? t->next : NULL)
        s->layers[i].moe =
            t ? cJSON_IsString(t) && strcmp(t->valuestring, "sparse") == 0 : i >= dense;
}

/* Of the norms within latent attention, whatever the file's is. */
static const double LATENT_EPS = 1e-6;

static void latent_sizes(struct config *c, struct decoder_spec *s, uint32_t q_rank, uint32_t v,
                         bool turns)
{
    struct mla_spec *m = &s->mla;
    m->q_rank = config_u32_or(c, "q_lora_rank", q_rank, 1, 1u << 20);
    m->kv_rank = config_u32_or(c, "kv_lora_rank", 512, 1, 1u << 16);
    m->nope = config_u32_or(c, "qk_nope_head_dim", 128, 1, 4096);
    m->rope = config_u32_or(c, "qk_rope_head_dim", turns ? 64 : 0, turns ? 2 : 0,
                            turns ? ROPE_MAX_DIM : 0);
    m->v = config_u32_or(c, "v_head_dim", v, 1, 4096);
    m->eps = (float)LATENT_EPS;
    if (m->rope % 2)
        config_fail(c, "`qk_rope_head_dim` must be even");
    s->head_dim = m->nope + m->rope;
    s->n_kv_heads = s->n_heads; /* `num_key_value_heads` is not used */
    s->rope[0].dim = m->rope;
}

void config_latent(struct config *c, struct decoder_spec *s, uint32_t q_rank, uint32_t v)
{
    latent_sizes(c, s, q_rank, v, true);
}

void config_latent_still(struct config *c, struct decoder_spec *s, uint32_t q_rank, uint32_t v)
{
    latent_sizes(c, s, q_rank, v, false);
}

void config_deepseek_moe(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    const char *experts = config_either(c, "num_experts", "num_local_experts");
    m->n_experts = config_u32_or(c, config_either(c, "n_routed_experts", experts), 256, 1, 4096);
    m->top_k = config_u32_or(c, config_either(c, "num_experts_per_token", "num_experts_per_tok"), 8,
                             1, 4096);
    m->n_groups = config_u32_or(c, config_either(c, "num_expert_group", "n_group"), 1, 1, 4096);
    m->top_groups = config_u32_or(c, "topk_group", 1, 1, 4096);
    m->renormalise = config_bool_or(c, config_either(c, "moe_renormalize", "norm_topk_prob"), true);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 1);
    m->ffn = config_dim(c, "moe_intermediate_size");
    m->shared_ffn =
        m->ffn *
        config_u32_or(c, config_either(c, "n_shared_experts", "num_shared_experts"), 0, 0, 64);
    const uint32_t dense = config_u32_or(c, "first_k_dense_replace", 0, 0, SPEC_MAX_LAYERS);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = i >= dense;
    config_check_moe(c, s);
}

void config_deepseek_v2_moe(struct config *c, struct decoder_spec *s)
{
    const char *method = config_str_or(c, "topk_method", "greedy");
    struct moe_spec *m = &s->moe;
    m->score = MOE_SOFTMAX;
    config_only_word(c, "scoring_func", "softmax");
    config_deepseek_moe(c, s);
    m->renormalise = config_bool_or(c, "norm_topk_prob", false);
    if (m->renormalise)
        m->scale = 1;
    if (strcmp(method, "greedy") == 0)
        m->n_groups = m->top_groups = 1;
    else if (strcmp(method, "group_limited_greedy") != 0)
        config_fail(c, "`topk_method` %.40s is not supported", method);
}

void config_pair_layers(struct config *c, struct decoder_spec *s, const char *key)
{
    s->paired = s->attends_text = true;
    if (s->n_layers > SPEC_MAX_LAYERS / 2)
        config_fail(c, "`%s` must be at most %d", key, SPEC_MAX_LAYERS / 2);
    if (c->failed)
        return;
    for (size_t i = s->n_layers; i-- > 0;) {
        s->layers[2 * i + 1] =
            (struct layer_spec){.mixer = MIXER_CROSS, .attn_scale = s->layers[i].attn_scale};
        s->layers[2 * i] = s->layers[i];
        s->layers[2 * i].no_ffn = true;
    }
    s->n_layers *= 2;
}

uint32_t config_shared_kv(struct config *c, struct decoder_spec *s, uint32_t def)
{
    const uint32_t n = config_u32_or(c, "num_kv_shared_layers", def, 0, s->n_layers - 1);
    const uint32_t own = s->n_layers - (n < s->n_layers ? n : 0);
    for (uint32_t i = own; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        for (uint32_t k = 0; k < own; k++)
            if (!s->layers[k].window == !l->window)
                l->kv_of = k + 1;
        if (!l->kv_of)
            config_fail(c, "layer %u shares keys and values with none before it", i);
    }
    return own;
}

void config_layer_ffn(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = json_get(c->root, "intermediate_size");
    if (!cJSON_IsArray(j)) {
        s->ffn = config_dim(c, "intermediate_size");
        return;
    }
    j = config_layer_list(c, s, "intermediate_size");
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next) {
        const double n = cJSON_IsNumber(j) ? j->valuedouble : 0;
        if (!(n >= 1 && n <= 1u << 22) || n != (uint32_t)n) {
            config_fail(c, "`intermediate_size` of layer %u must be an integer from 1 to 2^22", i);
            return;
        }
        s->layers[i].ffn = (uint32_t)n;
        s->ffn = s->layers[i].ffn > s->ffn ? s->layers[i].ffn : s->ffn;
    }
}

void config_granite_experts(struct config *c, struct decoder_spec *s)
{
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true; /* softmax over the chosen is that of all, scaled to sum to 1 */
    s->moe.shared_ffn = config_u32_or(c, "shared_intermediate_size", 0, 0, 1u << 22);
    s->moe.shared_packed = true;
    config_moe_layers(s);
}

void config_qwen_experts(struct config *c, struct decoder_spec *s, uint32_t n, uint32_t top_k)
{
    config_moe(c, s, n, top_k);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.shared_ffn = config_dim(c, "shared_expert_intermediate_size");
    s->moe.shared_gate = true;
}

void config_turns(struct config *c, struct decoder_spec *s, const char *key, uint32_t def,
                  bool norms)
{
    const uint32_t n = s->n_layers, times = config_u32_or(c, key, def, 1, SPEC_MAX_LAYERS);
    if ((uint64_t)n * times > SPEC_MAX_LAYERS) {
        config_fail(c, "`%s`: %u times %u layers are more than %u", key, times, n,
                    (uint32_t)SPEC_MAX_LAYERS);
        return;
    }
    for (uint32_t i = n; i < n * times; i++) {
        s->layers[i] = s->layers[i - n];
        s->layers[i].same_as = i % n + 1;
        s->layers[i - n].turn_ends = norms && i % n == n - 1;
    }
    s->n_layers = n * times;
}

/* The value of a layer in a list, which may also have draft layers; NULL: the file has no list. */
static const cJSON *listed(struct config *c, const struct decoder_spec *s, const char *key,
                           uint32_t layer)
{
    const cJSON *list = json_get(c->root, key);
    if (!cJSON_IsArray(list))
        return NULL;
    if ((uint32_t)cJSON_GetArraySize(list) < s->n_layers) {
        config_fail(c, "`%s` has fewer entries than layers", key);
        return NULL;
    }
    return cJSON_GetArrayItem(list, (int)layer);
}

double config_layer_num(struct config *c, const struct decoder_spec *s, const char *key,
                        uint32_t layer, double def)
{
    const cJSON *j = listed(c, s, key, layer);
    if (j && !cJSON_IsNumber(j) && !cJSON_IsNull(j))
        config_fail(c, "`%s` must be numbers", key);
    return j && cJSON_IsNumber(j) ? j->valuedouble : def;
}

void config_act_caps(struct config *c, struct decoder_spec *s, const char *experts,
                     const char *shared)
{
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const double of_experts = config_layer_num(c, s, experts, i, 0);
        const double of_shared = config_layer_num(c, s, shared, i, 0);
        if (of_experts != 0)
            s->layers[i].moe_act = config_limited(c, experts, ACT_SILU_CAPPED, of_experts);
        if (of_shared != 0)
            s->layers[i].act = config_limited(c, shared, ACT_SILU_CAPPED, of_shared);
    }
}
