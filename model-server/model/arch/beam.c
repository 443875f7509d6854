/* Beam (Reflection): Qwen 3's attention with an output gate; sliding windows and RoPE in five of
 * six layers, queries scaled by position in the others; norms before and after each sublayer, with
 * a running mean in the residual; DeepSeek's experts. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static const double GROWTH = 0.1, GROWTH_LENGTH = 2048;

static bool all_but_sixth_and_last(struct config *c, uint32_t layer)
{
    return (layer + 1) % 6 != 0 && layer + 1 != config_layers(c, "num_hidden_layers");
}

/* The file may name another rotation for each kind of layer; only these are served. */
static void check_rotations(struct config *c)
{
    const cJSON *p = config_object(c, c->root, "rope_parameters");
    const cJSON *full = p ? cJSON_GetObjectItemCaseSensitive(p, "full_attention") : NULL;
    if (p && !cJSON_IsNull(full))
        config_fail(c, "`rope_parameters`: layers without a window must not rotate");
}

static void growth(struct decoder_spec *s)
{
    s->q_growth =
        (struct q_growth){.beta = GROWTH, .length = GROWTH_LENGTH, .after = 1, .power = true};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].q_grows = !s->layers[i].window;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .heads = 48,
                                             .kv_heads = 8,
                                             .ffn = 20480});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    s->norms = NORM_AROUND;
    s->stream_mean = s->attn_gate_bias = true;
    s->attn_gate = ATTN_GATE_APART;
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 30);
    config_windows(c, s, 512, all_but_sixth_and_last);
    s->rope[0].dim = s->head_dim;
    config_window_rope(c, s, config_num_or(c, "rope_theta", 10000));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].rope = s->layers[i].window ? 1 : SPEC_NO_ROPE;
    check_rotations(c);
    growth(s);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    s->moe.n_groups = config_u32_or(c, "n_group", 8, 1, 4096);
    s->moe.top_groups = config_u32_or(c, "topk_group", 4, 1, 4096);
    s->moe.scale = (float)config_num_or(c, "routed_scaling_factor", 2.5);
    config_check_moe(c, s);
    config_mlp_layer_types(c, s, 3);
}

const struct arch arch_beam = {
    .types = (const char *const[]){"beam", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_EXPERTS,
              NAMES_GATED_MLP,
              NAMES_NORMS_AROUND, [W_ATTN_GATE] = "model.layers.*.self_attn.gate_proj",
              [W_ATTN_GATE_BIAS] = "model.layers.*.self_attn.gate_bias",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
