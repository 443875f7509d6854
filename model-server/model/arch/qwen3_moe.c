/* Qwen 3, mixtures of experts: dense layers where the file says so. */
#include "common/json.h"
#include "model-server/model/arch.h"

/* Every decoder_sparse_step-th layer has experts, but for those in mlp_only_layers. */
static void sparse_layers(struct config *c, struct decoder_spec *s)
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

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = true;
    config_moe(c, s, 128, 8);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
    config_windows(c, s, 4096, config_upper_layers);
    sparse_layers(c, s);
}

const struct arch arch_qwen3_moe = {
    .types = (const char *const[]){"qwen3_moe", NULL},
    .prefix = "model.",
    .names =
        {NAMES_LLAMA, [W_Q_NORM] = "model.layers.*.self_attn.q_norm",
         [W_K_NORM] = "model.layers.*.self_attn.k_norm", [W_ROUTER] = "model.layers.*.mlp.gate",
         [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
         [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
         [W_MOE_DOWN] = "model.layers.*.mlp.experts.*.down_proj"},
    .configure = configure,
};
