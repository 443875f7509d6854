/* IBM's Bamba: Mamba-2 layers, a few attention layers with RoPE on half of each head, gated MLPs.
 * */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Layers that are not in attn_layer_indices. */
static bool is_mamba(struct config *c, uint32_t layer)
{
    const cJSON *full = json_get(c->root, "attn_layer_indices"), *j;
    cJSON_ArrayForEach(j, full)
    {
        if (cJSON_IsNumber(j) && j->valuedouble == layer)
            return false;
    }
    return true;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 262144, .norm_eps = 1e-5, .rope_theta = 10000, .rotary = 0.5});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_mixers(c, s, MIXER_MAMBA2, is_mamba);
    config_mamba2(c, s, &config_mamba_keys);
}

const struct arch arch_bamba = {
    .types = (const char *const[]){"bamba", NULL},
    .prefix = "model.",
    .names = {NAMES_BAMBA},
    .configure = configure,
};
