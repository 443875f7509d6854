/* Lara Mini (Translated): layers of the gated delta rule (arXiv 2412.06464) and of attention, most
 * of which have sliding windows and RoPE, the others neither; experts and a shared expert in every
 * layer. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The period of the layers, if the file does not list them. */
static const char *const period[] = {"linear_attention", "sliding_attention", "linear_attention",
                                     "full_attention", "sliding_attention"};

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *t = config_layer_list(c, s, "layer_types");
    const uint32_t window = config_u32_or(c, "sliding_window", 512, 1, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++, t = t ? t->next : NULL) {
        const char *def = period[i % (sizeof(period) / sizeof(period[0]))];
        const char *kind = t ? cJSON_IsString(t) ? t->valuestring : "" : def;
        struct layer_spec *l = &s->layers[i];
        l->mixer = MIXER_ATTENTION;
        l->rope = SPEC_NO_ROPE;
        if (strcmp(kind, "linear_attention") == 0) {
            l->mixer = MIXER_DELTA;
        } else if (strcmp(kind, "sliding_attention") == 0) {
            l->window = window;
            l->rope = 0;
        } else if (strcmp(kind, "full_attention") != 0) {
            config_fail(c, "layers of type `%.40s` are not supported", kind);
        }
    }
}

static void delta(struct config *c, struct decoder_spec *s)
{
    struct recur_spec *r = &s->recur;
    r->key_heads = config_u32_or(c, "linear_num_key_heads", 8, 1, 1u << 16);
    r->heads = config_u32_or(c, "linear_num_value_heads", 16, 1, 1u << 16);
    r->key_dim = config_u32_or(c, "linear_key_head_dim", 128, 1, CONFIG_MOST_DIM);
    r->value_dim = config_u32_or(c, "linear_value_head_dim", 128, 1, CONFIG_MOST_DIM);
    r->joined = true;
    config_delta_rest(c, s, config_u32_or(c, "linear_conv_kernel_dim", 4, 2, CONV_MOST));
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 131072,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .heads = 16,
                                             .kv_heads = 4,
                                             .ffn = 512, /* of no layer */
                                             .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    layers(c, s);
    delta(c, s);
    config_moe(c, s, 128, 4);
    s->moe.ffn = config_u32_or(c, "moe_intermediate_size", 512, 1, 1u << 22);
    s->moe.shared_ffn = config_u32_or(c, "shared_expert_intermediate_size", 512, 1, 1u << 22);
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    config_moe_layers(s);
}

#define MIX "model.layers.*.linear_attn."
const struct arch arch_lara_mini = {
    .types = (const char *const[]){"lara_mini", NULL},
    .prefix = "model.",
    .names =
        {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM,
         NAMES_QWEN_SHARED_EXPERT, [W_MIX_IN] = MIX "in_proj", [W_MIX_CONV] = MIX "conv1d",
         [W_MIX_RATE] = MIX "A_log", [W_MIX_DT] = MIX "dt_bias",
         [W_MIX_NORM] = MIX "out_norm.weight|" MIX "norm.weight", [W_MIX_OUT] = MIX "out_proj"},
    .configure = configure,
};
