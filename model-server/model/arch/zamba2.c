/* Zamba2 (Zyphra, arXiv 2411.15242): Mamba-2 layers, some of which add to their input the output of
 * a block of attention and MLP. These layers share one or two blocks, each layer with its own
 * low-rank updates. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static const double NORM_EPS = 1e-5; /* of Mamba-2's norms, whatever the file's is */

/* Layers with a block take turns with them. In a file whose head is not the embedding each has its
 * own: transformers shares both or neither. */
static void blocks(struct config *c, struct decoder_spec *s)
{
    const cJSON *t = config_layer_list(c, s, config_either(c, "layers_block_type", "layer_types"));
    uint32_t first[SPEC_MAX_LAYERS], turns = 0;
    s->shared.blocks = config_u32_or(c, "num_mem_blocks", 1, 1, SPEC_MAX_LAYERS);
    s->shared.rank = config_u32_or(c, "adapter_rank", 128, 1, 65536);
    s->shared.qkv = config_bool_or(c, "use_shared_attention_adapter", false);
    if (!t || !s->shared.blocks) {
        config_fail(c, "`layers_block_type` is missing");
        return;
    }
    for (uint32_t i = 0; i < s->n_layers && t; i++, t = t->next) {
        struct layer_spec *l = &s->layers[i];
        const char *kind = cJSON_IsString(t) ? t->valuestring : "";
        l->mixer = MIXER_MAMBA2;
        l->no_ffn = true;
        if (strcmp(kind, "hybrid") != 0) {
            if (strcmp(kind, "mamba") != 0 && strcmp(kind, "linear_attention") != 0)
                config_fail(c, "layers of type `%.40s` are not supported", kind);
            continue;
        }
        if (turns < s->shared.blocks)
            first[turns] = i;
        l->mixer = MIXER_SHARED;
        l->block_of = s->tied ? first[turns % s->shared.blocks] : i;
        l->turn = turns++;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool rotates = config_bool_or(c, "use_mem_rope", false);
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 4096,
                                             .norm_eps = NORM_EPS,
                                             .rope_theta = 0,
                                             .tied = true,
                                             .ffn_times = 4});
    if (config_num_or(c, "rms_norm_eps", NORM_EPS) != NORM_EPS)
        config_fail(c, "`rms_norm_eps`: only 1e-5 is supported");
    config_only(c, "use_long_context", false);
    config_only(c, "add_bias_linear", false);
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_GATED_PACKED;
    if (s->n_kv_heads != s->n_heads || 2 * s->hidden % s->n_heads)
        config_fail(c, "%u heads of %u inputs, %u of keys and values, are not supported",
                    s->n_heads, 2 * s->hidden, s->n_kv_heads);
    s->head_dim = 2 * s->hidden / s->n_heads;
    s->rope[0].dim = s->head_dim;
    if (rotates)
        config_rope(c, s, 10000);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = 1 / sqrtf((float)s->head_dim / 2);
    blocks(c, s);
    config_mamba2(c, s,
                  &(struct mamba_keys){"n_mamba_heads", "mamba_headdim", "mamba_ngroups",
                                       "mamba_d_state", "mamba_d_conv", "use_conv_bias",
                                       "add_bias_linear", .silu = true});
    const double inner = config_num_or(c, "mamba_expand", 2) * s->hidden / s->recur.heads;
    if (inner != s->recur.value_dim)
        config_fail(c, "`mamba_headdim` is not that of `mamba_expand` and `n_mamba_heads`");
    s->recur.conv_bias = true;
    s->recur.dt_min = (float)config_num_or(c, "time_step_min", 0.001);
}

#define MAMBA(what) "model.layers.*.mamba." what "|model.layers.*.mamba_decoder.mamba." what
#define BLOCK(what) "model.layers.*.shared_transformer." what
#define TURN(what)  "model.layers.*.shared_transformer.self_attn.linear_" what
const struct arch arch_zamba2 = {
    .types = (const char *const[]){"zamba2", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.final_layernorm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm|"
                              "model.layers.*.mamba_decoder.input_layernorm",
              [W_MIX_IN] = MAMBA("in_proj"),
              [W_MIX_CONV] = MAMBA("conv1d"),
              [W_MIX_RATE] = MAMBA("A_log"),
              [W_MIX_DT] = MAMBA("dt_bias"),
              [W_MIX_SKIP] = MAMBA("D"),
              [W_MIX_NORM] = MAMBA("norm.weight"),
              [W_MIX_OUT] = MAMBA("out_proj"),
              [W_BLOCK_NORM] = BLOCK("input_layernorm"),
              [W_Q] = BLOCK("self_attn.q_proj"),
              [W_K] = BLOCK("self_attn.k_proj"),
              [W_V] = BLOCK("self_attn.v_proj"),
              [W_O] = BLOCK("self_attn.o_proj"),
              [W_MLP_NORM] = BLOCK("pre_ff_layernorm"),
              [W_GATE_UP] = BLOCK("feed_forward.gate_up_proj"),
              [W_DOWN] = BLOCK("feed_forward.down_proj"),
              [W_BLOCK_OUT] = "model.layers.*.linear",
              [W_TURN_Q_DOWN] = TURN("q_adapter_list.*.0"),
              [W_TURN_Q_UP] = TURN("q_adapter_list.*.1"),
              [W_TURN_K_DOWN] = TURN("k_adapter_list.*.0"),
              [W_TURN_K_UP] = TURN("k_adapter_list.*.1"),
              [W_TURN_V_DOWN] = TURN("v_adapter_list.*.0"),
              [W_TURN_V_UP] = TURN("v_adapter_list.*.1"),
              [W_TURN_MLP_DOWN] = BLOCK("feed_forward.gate_up_proj_adapter_list.*.0"),
              [W_TURN_MLP_UP] = BLOCK("feed_forward.gate_up_proj_adapter_list.*.1")},
    .configure = configure,
};
