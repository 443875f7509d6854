/* Falcon-H1 (arXiv 2507.22448): attention and Mamba-2 in parallel in every layer, a gated MLP, and
 * scalar multipliers for nearly every matrix. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* A list of n numbers, or 1 for each where there is none. */
static void factors(struct config *c, const char *key, float *out, int n)
{
    const cJSON *list = json_get(c->root, key), *j;
    for (int i = 0; i < n; i++)
        out[i] = 1;
    if (list && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n)) {
        config_fail(c, "`%s` must be %d numbers", key, n);
        return;
    }
    n = 0;
    cJSON_ArrayForEach(j, list)
    {
        if (!cJSON_IsNumber(j))
            config_fail(c, "`%s` must be numbers", key);
        out[n] = (float)j->valuedouble;
        if (out[n++] == 0)
            config_fail(c, "`%s` must not be 0", key);
    }
}

static float factor(struct config *c, const char *key) { return (float)config_num_or(c, key, 1); }

/* The inner width is mamba_d_ssm, or mamba_expand times the hidden size where that is null. */
static void mamba(struct config *c, struct decoder_spec *s)
{
    struct recur_spec *r = &s->recur;
    config_mamba2(c, s, &config_mamba_keys);
    const bool null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(c->root, "mamba_d_ssm"));
    const uint32_t expanded = (uint32_t)(config_num_or(c, "mamba_expand", 2) * s->hidden);
    const uint32_t inner = config_u32_or(c, "mamba_d_ssm", null ? expanded : 1024, 1, 1u << 22);
    if (!cJSON_IsNumber(json_get(c->root, "mamba_d_head"))) /* "auto" */
        r->value_dim = inner / r->heads;
    if (r->value_dim * r->heads != inner)
        config_fail(c, "`mamba_d_ssm`: %u heads of %u are not %u", r->heads, r->value_dim, inner);
    if (config_bool_or(c, "mamba_rms_norm", false))
        r->norm =
            config_bool_or(c, "mamba_norm_before_gate", true) ? RECUR_NORM_FIRST : RECUR_NORM_GATED;
    else
        r->norm = RECUR_NORM_NONE;
    config_only(c, "mamba_proj_bias", false);
    config_only(c, "projectors_bias", false);
    factors(c, "ssm_multipliers", r->factors, RECUR_PRODUCTS);
    for (int i = 0; i < RECUR_PRODUCTS; i++) {
        r->factors[i] *= factor(c, "ssm_in_multiplier");
        r->has_factors |= r->factors[i] != 1;
    }
    r->out_scale = factor(c, "ssm_out_multiplier");
}

/* What multiplies the input of q, k and v may as well multiply their products, where they have no
 * biases. */
static void attention(struct config *c, struct decoder_spec *s)
{
    const float in = factor(c, "attention_in_multiplier");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    if (in != 1 && s->bias.qkv)
        config_fail(c, "`attention_in_multiplier` beside `attention_bias` is not supported");
    s->recur.attn_out_scale = factor(c, "attention_out_multiplier") * in;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].mixer = MIXER_PAIR;
        s->layers[i].attn_scale = spec_head_scale(s) * in * in * factor(c, "key_multiplier");
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    float mlp[2];
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->embed_scale = factor(c, "embedding_multiplier");
    s->logit_scale = factor(c, "lm_head_multiplier");
    factors(c, "mlp_multipliers", mlp, 2);
    s->gate_scale = mlp[0] == 1 ? 0 : mlp[0];
    s->down_scale = mlp[1] == 1 ? 0 : mlp[1];
    mamba(c, s);
    attention(c, s);
}

const struct arch arch_falcon_h1 = {
    .types = (const char *const[]){"falcon_h1", NULL},
    .prefix = "model.",
    .names = {NAMES_BAMBA},
    .configure = configure,
};
