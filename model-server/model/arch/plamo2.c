/* PLaMo 2 (Preferred Networks, arXiv 2509.04897): PLaMo 3's norms before and after each sublayer;
 * every second layer is a Mamba with a step size per head, the others have sliding-window attention
 * with per-head QK norm. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>

/* The first and the last layer are recurrent, unless there are few. */
static bool is_mamba(struct config *c, const struct decoder_spec *s, uint32_t layer)
{
    const uint32_t step = config_u32_or(c, "mamba_step", 2, 2, SPEC_MAX_LAYERS);
    if (!config_bool_or(c, "mamba_enabled", true))
        return false;
    if (s->n_layers <= step / 2)
        return layer != s->n_layers - 1;
    return layer % step != step / 2;
}

static void mamba(struct config *c, struct decoder_spec *s)
{
    enum { LEAST_RANK = 64, RANKS = 16 };
    struct recur_spec *r = &s->recur;
    r->by_head = true;
    r->heads = config_u32_or(c, "mamba_num_heads", 64, 1, 1u << 16);
    r->value_dim = s->head_dim;
    r->key_heads = 1;
    r->key_dim = config_u32_or(c, "mamba_d_state", 64, 1, CONFIG_MOST_DIM);
    r->conv = config_u32_or(c, "mamba_d_conv", 4, 2, CONV_MOST);
    r->step_rank = s->hidden / RANKS > LEAST_RANK ? s->hidden / RANKS : LEAST_RANK;
    r->dt_max = INFINITY;
    r->scan_norm = SCAN_NORM_WEIGHTS;
    r->scan_eps = s->norm.eps;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (is_mamba(c, s, i))
            s->layers[i].mixer = MIXER_MAMBA;
}

static bool is_full(struct config *c, uint32_t layer)
{
    const cJSON *list = json_get(c->root, "full_attention_idx"), *j = NULL;
    if (list && !cJSON_IsArray(list))
        config_fail(c, "`full_attention_idx` must be a list of numbers of layers");
    cJSON_ArrayForEach(j, list) if (cJSON_IsNumber(j) && j->valuedouble == layer) return true;
    return false;
}

/* A token attends to itself and so many before it. */
static void windows(struct config *c, struct decoder_spec *s)
{
    const uint32_t n = config_u32_or(c, "attention_window_size", 2048, 1, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].mixer == MIXER_ATTENTION && !is_full(c, i))
            s->layers[i].window = n + 1;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    static const char *const rounded[] = {"eval_attention_n_bit", "eval_mlp_n_bit"};
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 2048,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .tied = true});
    s->act = ACT_SILU;
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    s->norms = NORM_AROUND;
    s->qk_norm = QK_NORM_BY_HEAD;
    s->qk_norm_eps = 1e-6F;
    s->norm.plus = 1;
    s->norm.post_plus[0] = 1 / 5.0f;
    s->norm.post_plus[1] = (float)pow(5, -1.5);
    for (size_t i = 0; i < sizeof(rounded) / sizeof(rounded[0]); i++)
        if (json_get(c->root, rounded[i]))
            config_fail(c, "`%s` is not supported", rounded[i]);
    mamba(c, s);
    windows(c, s);
}

static const struct config_key keys[] = {{"head_dim", "hidden_size_per_head"}, {NULL, NULL}};

const struct arch arch_plamo2 = {
    .types = (const char *const[]){"plamo2", NULL},
    .prefix = "model.",
    .names = {NAMES_PLAMO, [W_MIX_IN] = PLAMO_LAYER "mixer.in_proj",
              [W_MIX_CONV] = PLAMO_LAYER "mixer.conv1d",
              [W_MIX_STEP_KEYS] = PLAMO_LAYER "mixer.bcdt_proj",
              [W_MIX_STEP] = PLAMO_LAYER "mixer.dt_proj", [W_MIX_DT] = PLAMO_LAYER "mixer.dt_bias",
              [W_MIX_RATE] = PLAMO_LAYER "mixer.A_log", [W_MIX_SKIP] = PLAMO_LAYER "mixer.D",
              [W_MIX_STEP_NORM] = PLAMO_LAYER "mixer.dt_norm_weight",
              [W_MIX_K_NORM] = PLAMO_LAYER "mixer.B_norm_weight",
              [W_MIX_Q_NORM] = PLAMO_LAYER "mixer.C_norm_weight",
              [W_MIX_OUT] = PLAMO_LAYER "mixer.out_proj", [W_Q_NORM] = PLAMO_LAYER "mixer.q_weight",
              [W_K_NORM] = PLAMO_LAYER "mixer.k_weight"},
    .keys = keys,
    .configure = configure,
};
