/* NVIDIA's Llama Nemotron Super 49B and Ultra 253B (Puzzle, arXiv 2411.19146): Llama 3 with
 * heterogeneous layers: some lack attention or the MLP, and widths and key-value heads differ. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static const uint32_t FFN_UNIT = 256; /* widths of MLPs are multiples of it */

/* As it is, or 2/3 of 4 times the hidden size, times a factor. */
static uint32_t ffn_of(struct config *c, const struct decoder_spec *s, const cJSON *block)
{
    const double width = json_num(block, "intermediate_size", 0);
    if (width >= 1 && width <= 1u << 22)
        return (uint32_t)width;
    const double n = (double)(uint32_t)(2 * json_num(block, "ffn_mult", 0) * s->hidden / 3);
    if (!(n >= 1 && n <= 1u << 22)) {
        config_fail(c, "`ffn_mult` of a layer is missing or too large");
        return FFN_UNIT;
    }
    return ((uint32_t)n + FFN_UNIT - 1) / FFN_UNIT * FFN_UNIT;
}

static void only_usual(struct config *c, const cJSON *block)
{
    if (json_bool(block, "replace_with_linear", false))
        config_fail(c, "`block_configs`: replace_with_linear is not supported");
    if (json_bool(block, "sparsify", false))
        config_fail(c, "`block_configs`: sparsify is not supported");
    if (json_num(block, "window_length", 0) != 0 || json_num(block, "num_sink_tokens", 0) != 0)
        config_fail(c, "`block_configs`: windows and sink tokens are not supported");
}

static void block(struct config *c, struct decoder_spec *s, uint32_t layer, const cJSON *j)
{
    struct layer_spec *l = &s->layers[layer];
    const cJSON *attention = config_object(c, j, "attention"), *ffn = config_object(c, j, "ffn");
    only_usual(c, attention);
    only_usual(c, ffn);
    if (json_bool(attention, "no_op", false)) {
        l->mixer = MIXER_NONE;
    } else {
        const double each = json_num(attention, "n_heads_in_group", 0);
        if (!(each >= 1) || each > s->n_heads || s->n_heads % (uint32_t)each)
            config_fail(c, "`n_heads_in_group` of layer %u must divide the heads", layer);
        else
            l->n_kv_heads = s->n_heads / (uint32_t)each;
    }
    l->no_ffn = json_bool(ffn, "no_op", false);
    if (!l->no_ffn)
        l->ffn = ffn_of(c, s, ffn);
    if (l->no_ffn && l->mixer == MIXER_NONE)
        config_fail(c, "layer %u has neither attention nor MLP, which is not supported", layer);
    s->ffn = l->ffn > s->ffn ? l->ffn : s->ffn;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000, .ffn_by_layer = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    const cJSON *j = config_layer_list(c, s, "block_configs");
    if (!j)
        config_fail(c, "`block_configs` is missing");
    for (uint32_t i = 0; j && i < s->n_layers && !c->failed; i++, j = j->next)
        block(c, s, i, j);
    s->ffn = s->ffn ? s->ffn : FFN_UNIT;
}

/* A model's own number of heads of keys and values is null: each layer has its own. */
static const struct config_key keys[] = {{"num_key_value_heads", NULL}, {NULL, NULL}};

const struct arch arch_nemotron_nas = {
    .types = (const char *const[]){"nemotron-nas", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {NAMES_LLAMA},
    .configure = configure,
};
