/* Recurrent layers: which layers they are, and their sizes. */
#include "common/json/json.h"
#include "model-server/backend/act.h"
#include "model-server/model/config/config.h"
#include <math.h>
#include <string.h>

static enum mixer_kind mixer_of(struct config *c, const cJSON *word, enum mixer_kind recurrent)
{
    static const char *const recurrences[] = {"linear_attention", "mamba", "mamba2", "conv"};
    const char *w = cJSON_IsString(word) ? word->valuestring : "";
    for (size_t i = 0; i < sizeof(recurrences) / sizeof(recurrences[0]); i++)
        if (strcmp(w, recurrences[i]) == 0)
            return recurrent;
    if (strcmp(w, "full_attention") != 0 && strcmp(w, "attention") != 0 &&
        strcmp(w, "indexed_attention") != 0)
        config_fail(c, "layers of type `%.40s` are not supported", w);
    return MIXER_ATTENTION;
}

void config_mixers(struct config *c, struct decoder_spec *s, enum mixer_kind recurrent,
                   bool (*is_recurrent)(struct config *c, uint32_t layer))
{
    const cJSON *t = config_layer_list(c, s, config_either(c, "layer_types", "layers_block_type"));
    for (uint32_t i = 0; i < s->n_layers; i++, t = t ? t->next : NULL)
        s->layers[i].mixer = t                    ? mixer_of(c, t, recurrent)
                             : is_recurrent(c, i) ? recurrent
                                                  : MIXER_ATTENTION;
}

static void check_heads(struct config *c, const struct recur_spec *r)
{
    if (r->heads % r->key_heads)
        config_fail(c, "%u key heads or groups do not divide %u heads of recurrent layers",
                    r->key_heads, r->heads);
}

/* ---------------------------------------------------------------- Mamba-2 */

/* A number; old and new files write infinity as Infinity and {"__float__": "Infinity"}. */
static float limit_of(struct config *c, const cJSON *j)
{
    if (cJSON_IsNumber(j) && !isnan(j->valuedouble))
        return (float)j->valuedouble;
    if (strcmp(json_str(j, "__float__", ""), "Infinity") == 0)
        return INFINITY;
    config_fail(c, "`time_step_limit` must be two numbers");
    return 0;
}

static void time_step_limit(struct config *c, struct recur_spec *r)
{
    const cJSON *limit = json_get(c->root, "time_step_limit");
    r->dt_min = 0;
    r->dt_max = INFINITY;
    if (!limit)
        return;
    r->dt_min = limit_of(c, cJSON_GetArrayItem(limit, 0));
    r->dt_max = limit_of(c, cJSON_GetArrayItem(limit, 1));
}

/* The convolution's activation, and that of the gate: files have nothing else than SiLU. */
static void only_silu(struct config *c, const char *key)
{
    if (config_act(c, key, "silu") != ACT_SILU)
        config_fail(c, "`%s`: layers with a state are served with silu only", key);
}

const struct mamba_keys config_mamba_keys = {"mamba_n_heads",  "mamba_d_head", "mamba_n_groups",
                                             "mamba_d_state",  "mamba_d_conv", "mamba_conv_bias",
                                             "mamba_proj_bias"};

void config_mamba2(struct config *c, struct decoder_spec *s, const struct mamba_keys *k)
{
    struct recur_spec *r = &s->recur;
    const double expand =
        config_num_or(c, strncmp(k->heads, "mamba_", 6) ? "expand" : "mamba_expand", 2);
    r->heads = config_u32(c, k->heads, 1, 1u << 16);
    const double each = expand * s->hidden / r->heads;
    const uint32_t def = each >= 1 && each <= CONFIG_MOST_DIM ? (uint32_t)each : 1;
    const bool said = cJSON_IsNumber(json_get(c->root, k->head_dim)); /* else "auto" */
    r->value_dim = said ? config_u32(c, k->head_dim, 1, CONFIG_MOST_DIM) : def;
    r->key_heads = config_u32_or(c, k->groups, 1, 1, 1u << 16);
    r->key_dim = config_u32_or(c, k->state, 128, 1, CONFIG_MOST_DIM);
    r->conv = config_u32_or(c, k->conv, 4, 2, CONV_MOST);
    r->conv_bias = config_bool_or(c, k->conv_bias, true);
    r->proj_bias = config_bool_or(c, k->proj_bias, false);
    if (!k->silu)
        only_silu(c, config_either(c, "mamba_hidden_act", "hidden_act"));
    time_step_limit(c, r);
    check_heads(c, r);
}

/* ---------------------------------------------------------------- Mamba */

/* Channels in runs that ranks and vectors share out. */
static uint32_t run_of(uint32_t inner)
{
    uint32_t run = 64;
    while (run > 1 && (inner % run || inner / run < 8))
        run /= 2;
    return run;
}

void config_mamba(struct config *c, struct decoder_spec *s, const struct mamba_keys *k,
                  const char *rank, double inner)
{
    struct recur_spec *r = &s->recur;
    if (!(inner >= 1 && inner <= 1u << 22) || inner != floor(inner)) {
        config_fail(c, "%g channels of recurrent layers are not supported", inner);
        inner = 1;
    }
    r->value_dim = run_of((uint32_t)inner);
    r->heads = (uint32_t)inner / r->value_dim;
    r->key_heads = 1;
    r->key_dim = config_u32_or(c, k->state, 16, 1, CONFIG_MOST_DIM);
    r->conv = config_u32_or(c, k->conv, 4, 2, CONV_MOST);
    r->conv_bias = config_bool_or(c, k->conv_bias, true);
    r->proj_bias = config_bool_or(c, k->proj_bias, false);
    r->step_rank = (s->hidden + 15) / 16;
    if (cJSON_IsNumber(json_get(c->root, rank))) /* else "auto" */
        r->step_rank = config_u32(c, rank, 1, 1u << 20);
    if (!k->silu)
        only_silu(c, "hidden_act");
}

/* ---------------------------------------------------------------- gated delta rule */

/* First row of a part in recur_spec.joined's matrix. */
static uint32_t joined_row(const struct recur_spec *r, enum delta_part p)
{
    uint32_t at = 0;
    for (enum delta_part i = DELTA_Q; i < p; i++)
        at += (i <= DELTA_K ? r->key_heads : r->heads) * spec_delta_rows(r, i);
    return at;
}

uint32_t spec_delta_row(const struct recur_spec *r, enum delta_part p, uint32_t head)
{
    const uint32_t each = r->heads / r->key_heads, dk = r->key_dim, dv = r->value_dim;
    const uint32_t group = p <= DELTA_K ? head : head / each, in = head % each;
    const uint32_t first = head * spec_delta_rows(r, p);
    if (r->apart)
        return first;
    if (r->joined)
        return first + joined_row(r, p);
    if (!r->grouped)
        return first +
               (p == DELTA_K || p == DELTA_V ? r->key_heads * dk * (p == DELTA_K ? 1 : 2) : 0);
    const uint32_t at = group * 2 * (dk + each * dv);
    switch (p) {
    case DELTA_Q:
        return at;
    case DELTA_K:
        return at + dk;
    case DELTA_V:
        return at + 2 * dk + in * dv;
    case DELTA_Z:
        return at + 2 * dk + (each + in) * dv;
    default:
        return group * 2 * each + (p == DELTA_DECAY ? each : 0) + in;
    }
}

static bool not_every_nth(struct config *c, uint32_t layer)
{
    const double n = config_num_or(c, "full_attention_interval", 4);
    return !(n >= 1) || fmod(layer + 1, n) != 0;
}

void config_delta_rest(struct config *c, struct decoder_spec *s, uint32_t conv)
{
    s->recur.conv = conv;
    s->recur.beta_scale = 1;
    s->recur.gate_eps = s->norm.eps;
    if (act_kind(s->act) != ACT_SILU_SOFT) /* else it is said of the feed-forwards alone */
        only_silu(c, "hidden_act");
    check_heads(c, &s->recur);
}

/* Sizes of the delta layers: the hub's files have them in an object, transformers' at the top. */
void config_kimi_delta(struct config *c, struct decoder_spec *s, uint32_t heads)
{
    struct recur_spec *r = &s->recur;
    const cJSON *own = config_object(c, c->root, "linear_attn_config");
    cJSON *const root = c->root;
    c->root = own ? (cJSON *)(uintptr_t)own : root;
    r->heads = r->key_heads =
        config_u32_or(c, own ? "num_heads" : "linear_num_heads", heads, 1, 1u << 16);
    r->key_dim = r->value_dim = r->gate_rank =
        config_u32_or(c, own ? "head_dim" : "linear_head_dim", 128, 1, CONFIG_MOST_DIM);
    const uint32_t conv = config_u32_or(
        c, own ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4, 2, CONV_MOST);
    c->root = root;
    r->apart = r->by_key = true;
    config_delta_rest(c, s, conv);
}

void config_qwen_delta(struct config *c, struct decoder_spec *s, uint32_t ffn)
{
    struct recur_spec *r = &s->recur;
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 32768,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000000,
                                             .rotary = 0.25,
                                             .ffn = ffn});
    s->act = config_act(c, "hidden_act", "silu");
    s->norm.plus = 1;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    r->key_heads = config_u32(c, "linear_num_key_heads", 1, 1u << 16);
    r->heads = config_u32(c, "linear_num_value_heads", 1, 1u << 16);
    r->key_dim = config_u32(c, "linear_key_head_dim", 1, CONFIG_MOST_DIM);
    r->value_dim = config_u32(c, "linear_value_head_dim", 1, CONFIG_MOST_DIM);
    config_delta_rest(c, s, config_u32_or(c, "linear_conv_kernel_dim", 4, 2, CONV_MOST));
    if (config_bool_or(c, "attn_output_gate", true))
        s->attn_gate = ATTN_GATE_BESIDE_Q;
    config_mixers(c, s, MIXER_DELTA, not_every_nth);
}
