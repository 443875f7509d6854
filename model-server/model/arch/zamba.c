/* Zamba (Zyphra, arXiv 2405.16712): Mamba layers, some of which add to their input the output of
 * one shared block of attention and MLP. Each layer has several independent recurrences over groups
 * of channels. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The third layer, and then every sixth, unless the file lists them. */
static bool is_hybrid(struct config *c, const cJSON *kind, uint32_t i)
{
    const char *word = kind && cJSON_IsString(kind) ? kind->valuestring : "";
    const uint32_t period = config_u32_or(c, "attn_layer_period", 6, 1, SPEC_MAX_LAYERS);
    const uint32_t offset = config_u32_or(c, "attn_layer_offset", 4, 0, SPEC_MAX_LAYERS);
    if (!kind)
        return i == 2 || (i > 2 && (i - 3) % period == offset);
    if (strcmp(word, "hybrid") != 0 && strcmp(word, "mamba") != 0 &&
        strcmp(word, "linear_attention") != 0)
        config_fail(c, "layers of type `%.40s` are not supported", word);
    return strcmp(word, "hybrid") == 0;
}

/* A file whose head is not the embedding has a block for each of these layers: transformers shares
 * both or neither. */
static void blocks(struct config *c, struct decoder_spec *s)
{
    const cJSON *t = config_layer_list(c, s, config_either(c, "layers_block_type", "layer_types"));
    const bool listed = t != NULL;
    uint32_t first = SPEC_MAX_LAYERS;
    s->shared.blocks = 1;
    for (uint32_t i = 0; i < s->n_layers && (t || !listed); i++, t = t ? t->next : NULL) {
        struct layer_spec *l = &s->layers[i];
        l->mixer = MIXER_MAMBA;
        l->no_ffn = true;
        if (!is_hybrid(c, t, i))
            continue;
        first = i < first ? i : first;
        l->mixer = MIXER_SHARED;
        l->block_of = s->tied ? first : i;
    }
}

static void recurrences(struct config *c, struct decoder_spec *s)
{
    const struct mamba_keys keys = {.state = "mamba_d_state",
                                    .conv = "mamba_d_conv",
                                    .conv_bias = "mamba_conv_bias",
                                    .proj_bias = "mamba_proj_bias",
                                    .silu = true};
    s->recur.parts = config_u32_or(c, "n_mamba_heads", 2, 1, 64);
    config_only(c, "mamba_proj_bias", false);
    if (config_act(c, "hidden_mamba_act", "silu") != ACT_SILU)
        config_fail(c, "`hidden_mamba_act`: only silu is supported");
    config_mamba(c, s, &keys, "mamba_dt_rank",
                 config_num_or(c, "mamba_expand", 2) * s->hidden / s->recur.parts);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 4096, .norm_eps = 1e-5, .tied = true, .heads = 16, .kv_heads = 16});
    s->act = config_act(c, "hidden_act", "gelu");
    if (config_u32_or(c, "attention_hidden_size", 2 * s->hidden, 1, 1u << 23) != 2 * s->hidden)
        config_fail(c, "`attention_hidden_size`: only twice `hidden_size` is supported");
    s->head_dim = config_u32_or(c, "head_dim", 2 * s->hidden / s->n_heads, 1, ROPE_MAX_DIM);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = 1 / sqrtf((float)s->head_dim / 2);
    blocks(c, s);
    recurrences(c, s);
}

static const struct config_key keys[] = {{"head_dim", "attention_head_dim"}, {NULL, NULL}};

#define MAMBA(what) "model.layers.*.mamba." what "|model.layers.*.mamba_decoder.mamba." what
#define BLOCK(what) "model.layers.*.shared_transf." what
const struct arch arch_zamba = {
    .types = (const char *const[]){"zamba", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.final_layernorm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm|"
                              "model.layers.*.mamba_decoder.input_layernorm",
              [W_MIX_IN] = MAMBA("in_proj"),
              [W_MIX_CONV] = MAMBA("conv1d"),
              [W_MIX_STEP_KEYS] = MAMBA("x_proj_weight"),
              [W_MIX_STEP] = MAMBA("dt_proj_weight"),
              [W_MIX_DT] = MAMBA("dt_proj_bias"),
              [W_MIX_RATE] = MAMBA("A_log"),
              [W_MIX_SKIP] = MAMBA("D"),
              [W_MIX_OUT] = MAMBA("out_proj"),
              [W_BLOCK_NORM] = BLOCK("input_layernorm"),
              [W_Q] = BLOCK("self_attn.q_proj"),
              [W_K] = BLOCK("self_attn.k_proj"),
              [W_V] = BLOCK("self_attn.v_proj"),
              [W_O] = BLOCK("self_attn.o_proj"),
              [W_MLP_NORM] = BLOCK("pre_ff_layernorm"),
              [W_GATE] = BLOCK("feed_forward.gate_proj"),
              [W_UP] = BLOCK("feed_forward.up_proj"),
              [W_DOWN] = BLOCK("feed_forward.down_proj"),
              [W_BLOCK_OUT] = "model.layers.*.linear"},
    .configure = configure,
};
